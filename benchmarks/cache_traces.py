"""How much of its prompts does traffic find in a store, by its capacity and by how long it keeps?

``conversations``: the public trace of Mooncake (FAST25-release/traces/conversation_trace.jsonl of
the repository, an hour of chats) through matching, ``core.memory`` and ``core.disk``, on the
trace's clock: with room and time for all of it next to what any store could save, then with less
room, then with less time; and how many blocks a match asks for, whether or not the engine remembers
what it stored and got. The hour is too short for retention of days, so ``sessions`` are synthetic
(``trace_sessions``): four weeks of agents and chats, agents kept for three days, chats for one to a
hundred, with pauses of chats of different width. Capacities are those of records of the full model,
114,688 bytes a block.

``--plot`` draws all three. No time is measured, so a busy machine does no harm.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from deepinfer_core.interfaces.kv_store import KvStore
from deepinfer_core.stores.disk.clock import Clock
from deepinfer_core.stores.disk.index import AGE_STEP_S
from deepinfer_core.stores.disk.store import DiskStore
from deepinfer_core.stores.memory import MemoryStore
from deepinfer_core.stores.records import record_bytes
from deepinfer_core.stores.retention import Limits
from record import figure, options, write
from trace_replay import GROUP, Ideal, Passing, Request, Saved, ideal, read_conversations, replay
from trace_sessions import DAY_S, later_than, sessions

TAKEN_BYTES = 114_688
"""By a block of the full model with its header, in whole pages."""
ALL_BLOCKS = 1 << 20
CAPACITIES = tuple(1 << power for power in range(13, 20))
RETENTIONS_S = (30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0)
CHAT_SIGMAS = (3.0, 3.5, 4.0)
CHAT_DAYS = (1.0, 3.0, 7.0, 14.0, 100.0)
FOREVER_S = 1000 * DAY_S
WANTED_POINTS = 0.5
"""Of the ideal hit rate; what a store that forgets nothing may miss."""


def in_memory(
    requests: Sequence[Request],
    blocks: int,
    *,
    from_s: float = 0.0,
    remembers: bool = True,
    **kept_s: float,
) -> Saved:
    """Through ``core.memory`` with room for so many blocks."""
    clock = Passing()
    limits = Limits(capacity_bytes=blocks * record_bytes(GROUP), retention_s=kept_s)
    return through(MemoryStore(limits, clock=clock), clock, requests, from_s, remembers)


def on_disk(requests: Sequence[Request], blocks: int, **kept_s: float) -> Saved:
    """Through ``core.disk``, in pages of 4,096 bytes."""
    clock = Passing()
    limits = Limits(
        capacity_bytes=blocks * 4096, retention_s=kept_s, age_step_s=AGE_STEP_S,
        refresh_ratio=1 / 16,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        store = DiskStore(
            Path(folder) / "store", limits, durable=False, clock=Clock(wall=clock, steady=clock)
        )
        return through(store, clock, requests, 0.0)


def through(
    store: KvStore,
    clock: Passing,
    requests: Sequence[Request],
    from_s: float,
    remembers: bool = True,
) -> Saved:
    """Open, replay, close."""
    store.open([GROUP])
    try:
        return replay(store, clock, requests, counted_from_s=from_s, remembers=remembers)
    finally:
        store.close()


def main() -> None:
    """Replay, compare, draw."""
    parser = options(__doc__)
    parser.add_argument("--trace", type=Path, required=True, help="conversation_trace.jsonl")
    parser.add_argument("--plot", type=Path, help="an .svg or .png")
    parser.add_argument("--days", type=float, default=28.0, help="of synthetic sessions")
    parser.add_argument("--sessions", type=int, default=250, help="of each class")
    args = parser.parse_args()
    best, requests = ideal(args.trace), read_conversations(args.trace)
    figures = whole(requests, best)
    by_room = {blocks: in_memory(requests, blocks, agent=FOREVER_S) for blocks in CAPACITIES}
    by_time = {kept_s: in_memory(requests, ALL_BLOCKS, agent=kept_s) for kept_s in RETENTIONS_S}
    figures += [
        described(f"capacity_blocks={blocks}", saved, best, refused_blocks=saved.refused,
                  capacity_bytes=blocks * TAKEN_BYTES)
        for blocks, saved in by_room.items()
    ] + [
        described(f"retention_s={kept_s:g}", saved, best, most_records=saved.most_records)
        for kept_s, saved in by_time.items()
    ]  # fmt: skip
    figures += [matching(requests, by_room, blocks) for blocks in CAPACITIES[4:]]
    by_class = two_classes(args)
    figures += [
        chats(sigma, days, saved, by_class, args) for (sigma, days), saved in by_class.items()
    ]
    write("cache_traces.json", figures, is_record=args.record)
    if args.plot is not None:
        from trace_plot import draw

        draw(
            args.plot,
            ideal=best.rate,
            by_room={blocks * TAKEN_BYTES: saved.rate() for blocks, saved in by_room.items()},
            by_time={kept_s: saved.rate() for kept_s, saved in by_time.items()},
            by_class={key: saved.rate("chat") for key, saved in by_class.items()},
        )


def whole(requests: Sequence[Request], best: Ideal) -> list[dict[str, object]]:
    """With room and time for everything; raises if a store saves other than it could."""
    stores = {"core.memory": in_memory, "core.disk": on_disk}
    saved = {name: run(requests, ALL_BLOCKS, agent=FOREVER_S) for name, run in stores.items()}
    for name, one in saved.items():
        if abs(one.rate() - best.rate) > WANTED_POINTS / 100:
            raise SystemExit(f"{name} saves {one.rate():.4f}, {best.rate:.4f} could be saved")
    return [
        described(f"store={name}", one, best, most_records=one.most_records,
                  requests=len(requests), tokens=sum(one.asked.values()),
                  in_whole_ids=round(best.whole_ids_rate, 6))
        for name, one in saved.items()
    ]  # fmt: skip


def described(load: str, saved: Saved, best: Ideal, **extra: object) -> dict[str, object]:
    """One figure of the public trace."""
    return figure(
        f"cache_traces.conversations[{load}]", round(saved.rate(), 6), "of tokens",
        bound={"name": "whole blocks of earlier requests", "value": round(best.rate, 6)},
        ratio=round(saved.rate() / best.rate, 4), **extra,
    )  # fmt: skip


def matching(
    requests: Sequence[Request], by_room: dict[int, Saved], blocks: int
) -> dict[str, object]:
    """How many blocks of a store of so many are asked for until it is known how many are there."""
    saved, before = by_room[blocks], in_memory(requests, blocks, remembers=False, agent=FOREVER_S)
    probes, all_probes = saved.probes / saved.matches, before.probes / before.matches
    return figure(
        f"cache_traces.matches[capacity_blocks={blocks}]", round(probes, 3), "probes a match",
        bound={"name": "nothing remembered", "value": round(all_probes, 3)},
        ratio=round(probes / all_probes, 4), matches=saved.matches,
        questions=round(saved.questions / saved.matches, 3),
        questions_without=round(before.questions / before.matches, 3),
    )  # fmt: skip


def two_classes(args: argparse.Namespace) -> dict[tuple[float, float], Saved]:
    """Synthetic sessions, by the width of pauses and the days that chats are kept."""
    from_s = max(CHAT_DAYS[:3]) * DAY_S
    found = {}
    for sigma in CHAT_SIGMAS:
        asked = list(sessions(1, days=args.days, count=args.sessions, chat_sigma=sigma))
        for days in CHAT_DAYS:
            found[sigma, days] = in_memory(
                asked, 100 * ALL_BLOCKS, from_s=from_s, agent=3 * DAY_S, chat=days * DAY_S
            )
    return found


def chats(
    sigma: float,
    days: float,
    saved: Saved,
    all_saved: dict[tuple[float, float], Saved],
    args: argparse.Namespace,
) -> dict[str, object]:
    """One figure of the synthetic sessions."""
    rate, best = saved.rate("chat"), all_saved[sigma, CHAT_DAYS[-1]].rate("chat")
    return figure(
        f"cache_traces.sessions[chat_days={days:g},sigma={sigma:g}]", round(rate, 6),
        "of the tokens of chats",
        bound={"name": f"chats kept for {CHAT_DAYS[-1]:g} days", "value": round(best, 6)},
        ratio=round(rate / best, 5),
        points_behind_7_days=round(100 * (all_saved[sigma, 7.0].rate("chat") - rate), 3),
        agents=round(saved.rate("agent"), 6),
        most_records=saved.most_records,
        pauses_above_3_days=round(later_than(sigma, 3.0), 6),
        is_synthetic=True, days=args.days, sessions=args.sessions,
    )  # fmt: skip


if __name__ == "__main__":
    main()
