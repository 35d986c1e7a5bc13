"""Engines over the fake runner that have a store."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from deepinfer_core.engine.admission import Rules
from deepinfer_core.engine.batch import Batch
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.outputs import Completion
from deepinfer_core.engine.pages import PageCounts
from deepinfer_core.engine.prefix_reuse import ReusePolicy
from deepinfer_core.engine.request_options import RequestOptions
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.stored.exchange import Exchange
from deepinfer_core.engine.stored.limits import StoreLimits
from deepinfer_core.interfaces.kv_store import BlockGroup, KvStore
from deepinfer_core.schedule.snapshot import Limits
from deepinfer_core.stores.memory import MemoryStore
from deepinfer_core.stores.retention import Limits as StoreKeeps
from deepinfer_core.testing.fake_draws import fake_token
from deepinfer_core.testing.fake_pages import FakePages, fake_groups
from deepinfer_core.testing.fake_runner import FakeRunner
from deepinfer_core.testing.plain_traffic import PlainTraffic

BLOCK = 4
LONGEST = 60
VOCABULARY = 1000
KINDS = ("agent", "chat", "state")


@dataclass
class Stored:
    """An engine with a store, and a clock that a test sets."""

    engine: Engine
    traffic: PlainTraffic
    exchange: Exchange
    pages: FakePages
    now: list[float]
    done: dict[int, Completion] = field(default_factory=dict)

    def submit(self, prompt: list[int], most: int = 1, *, seed: int = 0, **options: Any) -> int:
        params = SamplingParams(max_tokens=most, seed=seed)
        return self.engine.submit(0, prompt, params, options=RequestOptions(**options))

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            for number, delta in self.engine.step():
                if delta.completion is not None:
                    self.done[number] = delta.completion
            self.engine.check_integrity()

    def run(self) -> None:
        """Until everybody has ended and all that is to be stored is stored."""
        for _ in range(500):
            if not self.engine.has_work:
                return
            self.step()
        raise AssertionError("somebody never ends")

    def ask(self, prompt: list[int], most: int = 1, *, seed: int = 0, **options: Any) -> Completion:
        """One request, alone, whose tokens are checked."""
        number = self.submit(prompt, most, seed=seed, **options)
        self.run()
        done = self.done[number]
        assert done.token_ids == answer_to(prompt, most, seed)
        return done

    def forget(self) -> None:
        """Nothing is in memory any more."""
        self.engine.batch.pages.cache.clear()

    @property
    def stored(self) -> list[bytes]:
        """Keys of the blocks that were stored, in order."""
        return self.traffic.stored["blocks"]

    def keys(self, tokens: list[int], *, salt: str = "") -> list[bytes]:
        chain = self.engine.batch.pages.policy.chain(salt)
        assert chain is not None
        chain.extend(tokens)
        return chain.keys


def answer_to(prompt: list[int], most: int, seed: int = 0) -> tuple[int, ...]:
    text = list(prompt)
    for _ in range(most):
        text.append(fake_token(seed, len(text), tuple(text), VOCABULARY))
    return tuple(text[len(prompt) :])


MakeStored = Callable[..., Stored]


@pytest.fixture
def make_stored() -> MakeStored:
    """Build one; several may have the same store, as engines of one cluster have."""

    def build(
        store: KvStore | None = None,
        *,
        has_states: bool = True,
        blocks: int = 64,
        snapshots: int = 8,
        rows: int = 32,
        recovery: Any = "exact",
        before_copy: Callable[[], None] = lambda: None,
        limits: StoreLimits | None = None,
        **traffic: Any,
    ) -> Stored:
        store = store or new_store(has_states=has_states)
        runner, now = FakeRunner(VOCABULARY, BLOCK), [0.0]
        policy = ReusePolicy(block_tokens=BLOCK, window_tokens=BLOCK, layers=2, recovery=recovery)
        moving, pages = PlainTraffic(store, **traffic), FakePages(runner, before_copy)
        exchange = Exchange(moving, pages, policy, limits or StoreLimits(), clock_s=lambda: now[0])
        step = Limits(max_rows=rows, max_sequences=4, block_tokens=BLOCK, usable_blocks=blocks)
        counts = PageCounts(blocks=blocks + 1, slots=5 + snapshots, snapshots=snapshots)
        engine = Engine(
            runner,
            Batch(step, counts, policy, exchange=exchange),
            Rules(vocabulary=VOCABULARY, max_model_tokens=LONGEST),
            is_asynchronous=False,
            clock_s=lambda: now[0],
        )
        return Stored(engine, moving, exchange, pages, now)

    return build


def new_store(*, has_states: bool = True) -> KvStore:
    store = MemoryStore(StoreKeeps(capacity_bytes=1 << 20, retention_s=dict.fromkeys(KINDS, 1e6)))
    groups: tuple[BlockGroup, ...] = fake_groups(BLOCK, LONGEST)
    store.open(groups if has_states else groups[:1])
    return store


@pytest.fixture
def text() -> list[int]:
    return [(37 * place + 11) % VOCABULARY for place in range(LONGEST)]
