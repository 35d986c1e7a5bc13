"""Does replaying a trace through a store save what a store could save, and count it right?"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.stores.memory import MemoryStore
from deepinfer_core.stores.retention import Limits

FOLDER = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def replaying(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    import trace_replay

    yield trace_replay
    for name in ("trace_replay", "trace_sessions"):
        sys.modules.pop(name, None)


@pytest.fixture
def sessions(replaying: Any) -> Any:
    import trace_sessions

    return trace_sessions


def trace(folder: Path, *requests: tuple[float, int, list[int]]) -> Path:
    """Seconds, tokens and ids of each request."""
    file = folder / "trace.jsonl"
    lines = [
        {"timestamp": 1000 * at_s, "input_length": tokens, "output_length": 1, "hash_ids": ids}
        for at_s, tokens, ids in requests
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    return file


def saved(replaying: Any, file: Path, **kept_s: float) -> Any:
    clock = replaying.Passing()
    limits = Limits(capacity_bytes=1 << 20, retention_s={"agent": 1e6, **kept_s})
    store = MemoryStore(limits, clock=clock)
    store.open([replaying.GROUP])
    found = replaying.replay(store, clock, replaying.read_conversations(file))
    store.close()
    return found


def test_what_is_saved_is_what_could_be(replaying: Any, tmp_path: Path) -> None:
    file = trace(
        tmp_path,
        (0, 1024, [1, 2]),
        # All but 134 tokens of it, in whole blocks: 6 of 8.
        (1, 1024, [1, 2]),
        # A beginning of one id, then another one; the end is a part of an id.
        (2, 900, [1, 3]),
        # 900 tokens are 7 blocks: the second id has three whole blocks.
        (3, 1300, [1, 3, 4]),
        (4, 100, [1]),
        # The same id at another place is another text.
        (5, 1024, [3, 1]),
    )
    best = replaying.ideal(file)
    asked = 1024 + 1024 + 900 + 1300 + 100 + 1024
    assert best.rate == 128 * (6 + 4 + 7) / asked
    assert saved(replaying, file).rate() == best.rate
    # Whole ids, to the end: both, the first, two (one of them was short), the first.
    assert best.whole_ids_rate == (1024 + 512 + 1024 + 100) / asked


def test_what_has_expired_is_not_saved(replaying: Any, tmp_path: Path) -> None:
    file = trace(tmp_path, (0, 1024, [1, 2]), (100, 1024, [1, 2]), (500, 1024, [1, 2]))
    asked = 3 * 1024
    assert saved(replaying, file, agent=1000.0).rate() == 2 * 6 * 128 / asked
    assert saved(replaying, file, agent=200.0).rate() == 6 * 128 / asked


def test_wrong_bytes_end_a_replay(replaying: Any, tmp_path: Path) -> None:
    file = trace(tmp_path, (0, 1024, [1, 2]), (1, 1024, [1, 2]))
    [first, second] = replaying.read_conversations(file)
    clock = replaying.Passing()
    store = MemoryStore(Limits(capacity_bytes=1 << 20, retention_s={"agent": 1e6}), clock=clock)
    store.open([replaying.GROUP])
    items = [
        replaying.StoreItem(key=key, data=bytes(8), namespace=bytes(32), depth=0)
        for key in first.keys
    ]
    store.store("blocks", items, deadline_s=1e18)
    with pytest.raises(SystemExit, match="wrong bytes"):
        replaying.replay(store, clock, [second])


def test_sessions_come_in_order_of_time_and_share_beginnings(sessions: Any) -> None:
    found = list(sessions.sessions(3, days=2, count=20, chat_sigma=3.5))
    assert [one.at_s for one in found] == sorted(one.at_s for one in found)
    assert {one.traffic for one in found} == {"agent", "chat"}
    assert all(len(one.keys) == one.tokens // sessions.BLOCK_TOKENS for one in found)
    # 40 sessions, of which many begin alike.
    assert 1 < len({one.keys[0] for one in found}) < 40
    assert found == list(sessions.sessions(3, days=2, count=20, chat_sigma=3.5))


def test_the_share_of_long_pauses_is_that_of_the_law(sessions: Any) -> None:
    draw = sessions.random.Random(1)
    pauses = [sessions._pause_s(draw, "chat", 3.0) for _ in range(40_000)]
    long = sum(one > 3 * sessions.DAY_S for one in pauses) / len(pauses)
    expected = sessions.later_than(3.0, 3.0)
    # Six standard deviations of a share that is drawn so many times.
    assert abs(long - expected) < 6 * (expected / len(pauses)) ** 0.5
