"""An engine over the fake runner, a tokenizer with one token a byte, requests, an event loop."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.engine.admission import Rules
from deepinfer_core.engine.async_llm import AsyncLLM
from deepinfer_core.engine.batch import Batch
from deepinfer_core.engine.core import Engine, Update
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.pages import PageCounts
from deepinfer_core.engine.prefix_reuse import ReusePolicy
from deepinfer_core.engine.router import Router
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.tokenizer import Tokenizer, open_tokenizer
from deepinfer_core.schedule.snapshot import Limits
from deepinfer_core.testing.byte_tokenizer import byte_tokenizer_source
from deepinfer_core.testing.fake_runner import FakeRunner
from deepinfer_core.testing.gated_steps import Gate
from deepinfer_core.testing.small_engines import Ask

BLOCK = 4

MakeEngine = Callable[..., Engine]
Main = Callable[[], Coroutine[Any, Any, Any]]


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    (folder / "tokenizer.json").write_text(byte_tokenizer_source(), encoding="utf-8")
    opened = open_tokenizer(folder)
    assert opened is not None
    return opened


@pytest.fixture
def make_engine(tokenizer: Tokenizer) -> MakeEngine:
    """Build an engine with a fake runner and small sizes."""

    def build(
        rows: int = 16, sequences: int = 4, blocks: int = 64, longest: int = 64, **options: Any
    ) -> Engine:
        runner = options.pop("runner", None) or FakeRunner(265, BLOCK)
        drafting = options.pop("drafting", None)
        seed = options.pop("seed", None)
        snapshots = options.pop("snapshots", 4)
        asynchronous = options.pop("asynchronous", True)
        policy = ReusePolicy(block_tokens=BLOCK, window_tokens=BLOCK, layers=2)
        policy = options.pop("policy", policy)
        limits = Limits(
            max_rows=rows,
            max_sequences=sequences,
            block_tokens=BLOCK,
            usable_blocks=blocks,
            rows_each=1 + drafting.drafts if drafting else 1,
        )
        rules = Rules(vocabulary=265, max_model_tokens=longest, **options)
        counts = PageCounts(blocks=blocks + 1, slots=sequences + 1 + snapshots, snapshots=snapshots)
        batch = Batch(limits, counts, policy, drafting)
        return Engine(runner, batch, rules, tokenizer, seed=seed, is_asynchronous=asynchronous)

    return build


@pytest.fixture
def gated(make_engine: MakeEngine) -> tuple[Engine, Gate]:
    """An engine whose steps run as its gate lets them."""
    gate = Gate()
    # Synchronous, so that a step gives its results before the next one comes to the gate.
    return make_engine(runner=FakeRunner(265, BLOCK, gate), asynchronous=False), gate


class FakeLLM(LLM):
    """What ``AsyncLLM`` needs of an ``LLM``, over any engine; one token a character."""

    def __init__(self, engine: Engine) -> None:
        self.held: Engine | None = engine
        self.encoded: list[str] = []

    def encode(self, text: str) -> list[int]:
        self.encoded.append(text)
        return [9 + ord(letter) for letter in text]

    def close(self) -> None:
        self.held = None


@pytest.fixture
def open_async(make_engine: MakeEngine) -> Iterator[Callable[..., AsyncLLM]]:
    """Open an ``AsyncLLM`` over an engine with the fake runner; it is stopped after the test."""
    threads = []

    def build(
        engine: Engine | None = None,
        places: int = 64,
        finished: Callable[[Update], None] = lambda update: None,
    ) -> AsyncLLM:
        engine = engine or make_engine()
        fake, llm = FakeLLM(engine), AsyncLLM.__new__(AsyncLLM)
        llm._start(fake, Router(engine, fake.encode, finished), places)
        threads.append(llm._thread)
        return llm

    yield build
    for thread in threads:
        thread.stop("the test ended")
        thread._thread.join(10)
        assert not thread._thread.is_alive()


@pytest.fixture
def run_async() -> Callable[[Main], Any]:
    """Run a coroutine in a loop with debug mode, which must have nothing to complain about."""

    def run(main: Main) -> Any:
        complaints: list[dict[str, Any]] = []

        async def guarded() -> Any:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: complaints.append(context))
            async with asyncio.timeout(20):  # a hang is a failure, not a wait for ever
                return await main()

        found = asyncio.run(guarded(), debug=True)
        assert complaints == []
        return found

    return run


@pytest.fixture
def asks() -> list[Ask]:
    """Texts of every length around a window and blocks of 16 tokens; greedy and random."""
    return [
        Ask(
            prompt=[(7 * place + length) % 250 for place in range(length)],
            params=SamplingParams(
                max_tokens=40 + length % 5, seed=length, temperature=float(length % 2)
            ),
        )
        for length in (1, 2, 15, 16, 17, 30)
    ]
