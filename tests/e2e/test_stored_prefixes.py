"""Cold equals cached, bit for bit, where blocks and states come from a store.

Conversations go on turn after turn, in random order, each turn in an engine that finds what earlier
ones have left: in its memory, in its store, in both, or in neither, because some of it was dropped.
Now and then there is a new engine, with nothing in memory. The oracle is an engine that reuses
nothing. Conversations are generated, or, with ``PROMPTS=FOLDER``, those of the folder's
``chat.jsonl``: a JSON object a line, with ``user_turns``.
"""

import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.cache.replay import DecoderTruncation
from deepinfer_core.config import load_settings
from deepinfer_core.config.resolution import resolve_components
from deepinfer_core.engine.request_options import RequestOptions
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import NoUsableComponent
from deepinfer_core.interfaces.kv_store import KvStore
from deepinfer_core.plugin.resolved import load
from deepinfer_core.testing.beginnings import words
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.cached_prefix import CachedPrefix
from deepinfer_core.testing.cold_text import ColdText
from deepinfer_core.testing.free_ports import free_addresses
from deepinfer_core.testing.lossy_store import LossyStore
from deepinfer_core.testing.plain_traffic import PlainTraffic
from deepinfer_core.testing.small_engines import (
    Answer,
    Ask,
    EngineShape,
    SmallEngine,
    small_engine,
)
from deepinfer_core.testing.small_stores import PATIENT, small_groups

ColdTexts = Callable[..., ColdText]

SMALL = "capacity_bytes=67108864"
MEMORY = '{use="core.memory",options={capacity_bytes=67108864}}'
DISK = '{use="core.disk",options={folder="{folder}/disk",durable=false,capacity_bytes=67108864}}'
STORES: dict[str, tuple[str, ...]] = {
    "core.memory": (SMALL,),
    "core.disk": (SMALL, "folder={folder}", "durable=false"),
    "core.tiered": (f"tiers=[{MEMORY},{DISK}]",),
    "core.erasure": (f"children=[{','.join([MEMORY] * 12)}]", "codec=numpy"),
    "core.peers": (SMALL, "name=127.0.0.1:{port}", 'members=["127.0.0.1:{port}"]'),
    "threefs.posix": (SMALL, "folder={folder}", "durable=false"),
}
TURNS = 3
FORCED = 9
"""Tokens of an answer that are known, so that later turns are known too; more than a block."""

SHAPE = EngineShape(block_tokens=8, blocks=512, max_rows=1024, snapshots=24)
MASKED = replace(SHAPE, truncation=DecoderTruncation(mode="mask", keep_tokens=22))


@pytest.fixture(scope="module")
def cold(cold_texts: ColdTexts) -> ColdText:
    return cold_texts(16)


@pytest.fixture(scope="module")
def texts() -> list[list[int]]:
    """Conversations, two of which begin alike."""
    shared, folder = words("system", 70), os.environ.get("PROMPTS")
    return [
        [*(shared if number % 2 else ()), *text[: 210 + 9 * number]]
        for number, text in enumerate(published(folder, 3) if folder else generated(3))
    ]


def generated(count: int) -> list[list[int]]:
    return [words(f"conversation {number}", 300) for number in range(count)]


def published(folder: str, count: int) -> list[list[int]]:
    lines = Path(folder, "chat.jsonl").read_text().splitlines()
    random.Random("lines").shuffle(lines)
    joined = ["\n".join(json.loads(line)["user_turns"]) for line in lines]
    tokens = [[9 + byte for byte in text.encode()] for text in joined]
    return [one for one in tokens if len(one) >= 300][:count]


def asks_of(texts: Sequence[Sequence[int]], turn: int, *, salt: str = "") -> list[Ask]:
    """A turn of each conversation; the last one is drawn."""
    asks = []
    for number, text in enumerate(texts):
        end = (len(text) - FORCED) * (turn + 1) // TURNS - number
        params = SamplingParams(golden_token_ids=text[end : end + FORCED], max_tokens=FORCED)
        if turn == TURNS - 1:
            params = SamplingParams(temperature=1, seed=number, max_tokens=9)
        options = RequestOptions(cache_salt=salt, retention="chat" if number % 2 else "agent")
        asks.append(Ask(prompt=text[:end], params=params, options=options))
    return asks


@pytest.fixture(scope="module")
def wanted(cold: ColdText, texts: list[list[int]]) -> dict[EngineShape, list[list[Answer]]]:
    """The answers of engines that reuse nothing, turn by turn."""
    found = {}
    for shape in (SHAPE, MASKED):
        engine = small_engine(cold.model, replace(shape, shares=False))
        found[shape] = [engine.answer(asks_of(texts, turn)) for turn in range(TURNS)]
        engine.close()
    return found


@pytest.fixture
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KvStore]:
    """A store, not open yet."""
    name: str = request.param
    port = free_addresses(1)[0].rpartition(":")[2]
    options = [
        option.replace("{folder}", str(tmp_path)).replace("{port}", port) for option in STORES[name]
    ]
    wanted = ["plugins.autoload=false", f"components.kv_store.use={name}"]
    if not name.startswith("core."):
        wanted.append(f"plugins.require=deepinfer-{name.partition('.')[0]}")
    wanted += [f"components.kv_store.options.{option}" for option in options]
    try:
        resolved = resolve_components(load_settings(None, wanted, environ={})).require()
    except NoUsableComponent as error:
        pytest.skip(f"{name}: {error}")
    store = load(resolved, "kv_store")
    yield store
    store.close()


def same(found: Answer, wanted: Answer) -> None:
    assert found.done.token_ids == wanted.done.token_ids
    assert_same_bits(found.logits_RV, wanted.logits_RV)


def forget_some(engine: SmallEngine, texts: list[list[int]], draw: random.Random) -> None:
    """Drop cached blocks and snapshots as if room had been needed."""
    while engine.has_work:  # blocks that are still to be stored are held
        engine.step()
    for text in texts:
        prefix = CachedPrefix(engine.batch, text)
        count = len(text) // SHAPE.block_tokens
        for number in draw.sample(range(count), draw.randint(0, count // 3)):
            prefix.drop_block(number)
        if draw.random() < 0.5:
            prefix.drop_snapshots(behind=draw.randrange(len(text)))


class Talk:
    """Conversations over engines that come and go, and one store."""

    def __init__(self, cold: ColdText, shape: EngineShape, store: KvStore, **traffic: Any) -> None:
        self.model, self.shape, self.store = cold.model, shape, store
        self.options = traffic
        self.store.open(small_groups(cold.model, shape))
        self.start()

    def start(self) -> None:
        self.traffic = PlainTraffic(self.store, **self.options)
        self.engine = small_engine(
            self.model, self.shape, traffic=self.traffic, store_limits=PATIENT
        )
        # What slots held before must not matter.
        self.engine.runner.caches.states_PB.fill_(0x2B)

    @property
    def states(self) -> int:
        """States that have come to the engine that there is."""
        exchange = self.engine.batch.pages.exchange
        assert exchange is not None
        return exchange.counts.states

    def end(self) -> None:
        self.engine.close()
        assert not self.traffic.slots_out

    def restart(self) -> None:
        self.end()
        groups = list(self.store.groups.values())
        if self.store.capabilities.is_persistent:
            self.store.close()
            self.store.open(groups)
        self.start()


# Every mode with one store; the others have two or one of them.
RUNS = [
    *(
        (name, shape, is_asynchronous)
        for name in ("core.memory", "core.disk")
        for shape in (SHAPE, MASKED)
        for is_asynchronous in ((False, True) if name == "core.memory" else (shape is SHAPE,))
    ),
    ("core.tiered", SHAPE, True),
    ("core.erasure", MASKED, False),
    ("core.peers", SHAPE, True),
    ("threefs.posix", MASKED, False),
]


def title(value: object) -> str | None:
    if isinstance(value, EngineShape):
        return "replay mask" if value.truncation else "replay off"
    return value if isinstance(value, str) else "asynchronous" if value else "synchronous"


@pytest.mark.parametrize(("kept", "shape", "is_asynchronous"), RUNS, indirect=["kept"], ids=title)
def test_conversations_go_on_with_the_bits_of_a_run_without_cache(
    cold: ColdText,
    texts: list[list[int]],
    wanted: dict[EngineShape, list[list[Answer]]],
    kept: KvStore,
    shape: EngineShape,
    is_asynchronous: bool,
) -> None:
    answers = wanted[shape]
    draw = random.Random(f"{shape.truncation} {is_asynchronous}")
    store = LossyStore(kept, draw)
    shape = replace(shape, is_asynchronous=is_asynchronous)
    talk = Talk(cold, shape, store, slots=9, batch_blocks=3)
    came = cached = states = 0
    turns = [(turn, number) for turn in range(TURNS) for number in range(len(texts))]
    draw.shuffle(turns)
    groups = [turns[at : at + 3] for at in range(0, len(turns), 3)]
    # Each is met again by an engine that gets all there is, and so begins right behind a state.
    for place, group in enumerate(group for group in groups for _ in range(2)):
        store.lost = store.damaged = 0.0 if place % 2 else 0.03
        asks = [asks_of(texts, turn)[number] for turn, number in group]
        for (turn, number), answer in zip(group, talk.engine.answer(asks), strict=True):
            same(answer, answers[turn][number])
            came += answer.done.usage.stored_tokens
            cached += answer.done.usage.cached_tokens
        states += talk.states
        if place % 2:
            forget_some(talk.engine, texts, draw)
        else:
            talk.restart()
    talk.end()
    assert store.faults, "nothing was ever lost"
    assert 60 < came < cached, "the store was not of much use"
    assert states, "no state came"


@pytest.mark.parametrize("kept", ["core.memory"], indirect=True)
@pytest.mark.parametrize("has_states", [True, False], ids=["with states", "without states"])
def test_a_bounded_recovery_is_exact_behind_a_state_and_stores_nothing_else(
    cold: ColdText,
    texts: list[list[int]],
    wanted: dict[EngineShape, list[list[Answer]]],
    kept: KvStore,
    has_states: bool,
) -> None:
    """An approximate answer is wrong by a few bits, and the store must not learn of them."""
    groups = small_groups(cold.model, SHAPE)
    kept.open(groups if has_states else groups[:1])
    bounded = replace(SHAPE, recovery="bounded")
    first, last = asks_of(texts, 0), asks_of(texts, TURNS - 1)
    exact = 0
    for shape, asks, right in (
        (SHAPE, first, wanted[SHAPE][0]),
        (bounded, first, wanted[SHAPE][0]),
        (bounded, last, wanted[SHAPE][-1]),
        (SHAPE, last, wanted[SHAPE][-1]),
    ):
        engine = small_engine(cold.model, shape, traffic=PlainTraffic(kept), store_limits=PATIENT)
        found = engine.answer(asks)
        engine.close()
        for answer, other in zip(found, right, strict=True):
            is_exact = answer.done.token_ids == other.done.token_ids and answer.logits_RV.equal(
                other.logits_RV
            )
            exact += is_exact
            assert is_exact or (shape is bounded and not has_states)
    assert (exact == 4 * len(texts)) == has_states
