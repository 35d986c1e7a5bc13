"""What would a store have saved the requests of a trace, and how much could any store have saved?

A request brings the keys of its blocks. As in an engine, the leading ones that are there are found
and loaded, at most up to 134 tokens before the end of the prompt, and all blocks behind them are
stored. Time is that of the trace; blocks hold eight bytes, which are compared when they are loaded,
so that a million of them fit. A block counts as stored when the next request comes.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepinfer_core.cache.keys import block_key, namespace
from deepinfer_core.engine.stored.stored_keys import StoredKeys
from deepinfer_core.interfaces.kv_store import BlockGroup, KvStore, Outcome, StoreItem
from deepinfer_core.stores.fetcher.gallop import match

BLOCK_TOKENS = 128
TOKENS_OF_AN_ID = 512
"""What one hash of the trace stands for; from the README of the Mooncake repository."""
HELD_BACK_TOKENS = 134
"""A window and six rows of drafts at the end of a prompt are computed in any case."""
ROOT = namespace(model=b"trace", layout=b"trace", numerics="trace")
GROUP = BlockGroup(
    name="blocks",
    number_format="bytes",
    layout=hashlib.sha256(b"trace").digest()[:16],
    block_tokens=BLOCK_TOKENS,
    block_bytes=8,
    reuse="leading",
    replay_tokens=0,
    retention="agent",
)
SWEPT_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt.

    Attributes:
        at_s: when it comes.
        tokens: its length.
        keys: of its whole blocks.
        traffic: class of retention.
        block_tokens: tokens of each block.
    """

    at_s: float
    tokens: int
    keys: tuple[bytes, ...]
    traffic: str = "agent"
    block_tokens: int = BLOCK_TOKENS

    @property
    def most_blocks(self) -> int:
        """That may come from a store."""
        return max(0, min(len(self.keys), (self.tokens - HELD_BACK_TOKENS) // self.block_tokens))


@dataclass(slots=True)
class Saved:
    """Tokens that were asked for and that came from a store, by class of traffic.

    Attributes:
        asked, hit: tokens.
        most_records: that the store ever held.
        refused: blocks that found no room.
        matches: requests of which a store was asked how much it has.
        questions, probes: calls for that, and blocks that they were about.
    """

    asked: dict[str, int] = field(default_factory=dict)
    hit: dict[str, int] = field(default_factory=dict)
    most_records: int = 0
    refused: int = 0
    matches: int = 0
    questions: int = 0
    probes: int = 0

    def add(self, request: Request, blocks: int) -> None:
        """Count a request."""
        traffic = request.traffic
        self.asked[traffic] = self.asked.get(traffic, 0) + request.tokens
        self.hit[traffic] = self.hit.get(traffic, 0) + blocks * request.block_tokens

    def rate(self, traffic: str = "") -> float:
        """Share of tokens that came from the store, of one class or of all."""
        if traffic:
            return self.hit[traffic] / self.asked[traffic]
        return sum(self.hit.values()) / sum(self.asked.values())


class Passing:
    """The clock of a replay."""

    def __init__(self, start_s: float = 1e9) -> None:
        self.start_s = self.now_s = start_s

    def __call__(self) -> float:
        """Seconds."""
        return self.now_s


def replay(
    store: KvStore,
    clock: Passing,
    requests: Iterable[Request],
    *,
    counted_from_s: float = 0.0,
    remembers: bool = True,
) -> Saved:
    """Send all requests through an open store.

    Args:
        store: for ``GROUP``; its clock is the next argument.
        clock: set to the time of each request.
        requests: in order of time.
        counted_from_s: those before it fill the store and are not counted.
        remembers: matches begin where one engine remembers that the chain ended, as they do; False:
            they know nothing.
    """
    saved, swept_s, known = Saved(), -math.inf, StoredKeys(clock)
    room = [bytearray(GROUP.block_bytes) for _ in range(1 << 14)]
    for request in requests:
        clock.now_s = clock.start_s + request.at_s
        if request.at_s - swept_s >= SWEPT_EVERY_S:
            store.sweep(deadline_s=math.inf)
            swept_s = request.at_s
        wanted = request.keys[: request.most_blocks]
        found = _found(store, wanted, known.reach(wanted) if remembers else 0, saved)
        blocks = _loaded(store, wanted[:found], room)
        items = [
            StoreItem(key=key, data=key[:8], namespace=ROOT, depth=depth, retention=request.traffic)
            for depth, key in enumerate(request.keys)
            if depth >= blocks
        ]
        for key in wanted[blocks:found]:
            known.discard(key)
        for key in request.keys:
            known.add(key)
        stored = store.store(GROUP.name, items, deadline_s=math.inf)
        saved.refused += sum(one.status == "unavailable" for one in stored)
        if request.at_s >= counted_from_s:
            saved.add(request, blocks)
            saved.most_records = max(saved.most_records, store.report().records)
    return saved


def _found(store: KvStore, wanted: tuple[bytes, ...], expected: int, saved: Saved) -> int:
    """Leading blocks that seem to be there."""

    def find(keys: list[bytes]) -> list[Outcome]:
        saved.questions += 1
        return store.find(GROUP.name, keys, deadline_s=math.inf)

    found = match(find, wanted, expected=expected)
    saved.matches += bool(wanted)
    saved.probes += found.probes
    return found.blocks


def _loaded(store: KvStore, keys: tuple[bytes, ...], room: list[bytearray]) -> int:
    """Leading blocks that came."""
    places = room[: len(keys)]
    outcomes = store.load(GROUP.name, keys, places, deadline_s=math.inf)
    for blocks, (key, outcome, place) in enumerate(zip(keys, outcomes, places, strict=True)):
        if outcome.status != "hit":
            return blocks
        if place != key[:8]:
            raise SystemExit("a store gave wrong bytes")
    return len(keys)


def read_conversations(file: Path) -> list[Request]:
    """The requests of a Mooncake trace: ids of 512 tokens each, which tell prefixes that agree."""
    known: dict[tuple[bytes, int, int], bytes] = {}
    requests = []
    for line in _lines(file):
        keys: list[bytes] = []
        for number in range(line["input_length"] // BLOCK_TOKENS):
            part, quarter = divmod(number * BLOCK_TOKENS, TOKENS_OF_AN_ID)
            place = keys[-1] if keys else ROOT, line["hash_ids"][part], quarter
            if place not in known:
                # One token stands for the block's 128: the same ones for the same id.
                known[place] = block_key(place[0], place[1:])
            keys.append(known[place])
        requests.append(Request(line["timestamp"] / 1e3, line["input_length"], tuple(keys)))
    return requests


@dataclass(frozen=True, slots=True)
class Ideal:
    """What a store that forgets nothing saves; counted with neither keys nor a store.

    Attributes:
        rate: share of tokens that are in whole blocks of earlier requests.
        whole_ids_rate: the same in units of 512 tokens, and up to the end of the prompt.
    """

    rate: float
    whole_ids_rate: float


def ideal(file: Path) -> Ideal:
    """Walk a tree of ids."""
    child: dict[tuple[int, int], int] = {}
    known_blocks: dict[int, int] = {}
    asked = hit = hit_ids = 0
    for line in _lines(file):
        tokens, node, cached, ids, follows = line["input_length"], 0, 0, 0, True
        for number, one in enumerate(line["hash_ids"]):
            own = min(TOKENS_OF_AN_ID, tokens - number * TOKENS_OF_AN_ID) // BLOCK_TOKENS
            is_new = (node, one) not in child
            node = child.setdefault((node, one), len(child) + 1)
            before = known_blocks.get(node, 0)
            ids += follows and not is_new
            cached += min(own, before) if follows else 0
            follows = follows and min(own, before) == TOKENS_OF_AN_ID // BLOCK_TOKENS
            known_blocks[node] = max(own, before)
        asked += tokens
        hit += max(0, min(cached, (tokens - HELD_BACK_TOKENS) // BLOCK_TOKENS)) * BLOCK_TOKENS
        hit_ids += min(ids * TOKENS_OF_AN_ID, tokens)
    return Ideal(hit / asked, hit_ids / asked)


def _lines(file: Path) -> Iterator[Mapping[str, Any]]:
    with file.open() as lines:
        yield from map(json.loads, lines)
