"""What becomes of a store's blocks when 20,000 faults are injected?

Bits that flip in every field of records and in their data, torn writes and lost sectors, files that
are cut off, media without room, writers that are killed, tiers that hang or are slow
(``testing.store_faults``). A single wrong byte, a stored block that is gone, or a caller that waits
for a tier that hangs ends the run with an error; so the figures are of runs without any. They say
how many faults there were of each kind, what became of the blocks, how many faults no report
counted, and what the process has more of than before: descriptors, threads, memory.

The stores of ``deepinfer-threefs`` have their records damaged only; that on USRBIO has a library in
front of plain files that behaves like 3FS's.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from deepinfer_core.stores.retention import Limits
from deepinfer_core.testing.store_faults.campaign import (
    Campaign,
    damage_in_turn,
    left_behind,
    run_campaign,
)
from deepinfer_core.testing.store_faults.damage import FaultReport
from deepinfer_core.testing.store_faults.targets import CAPACITY_BYTES, Target
from deepinfer_threefs.medium import PosixMedium
from deepinfer_threefs.place import StorePlace
from deepinfer_threefs.store import ThreefsStore
from deepinfer_threefs.testing.usrbio import FakeUsrbio, Habits
from deepinfer_threefs.usrbio import UsrbioMedium
from record import figure, options, write

KILLED, CUT, FULL, SLOW = 200, 100, 50, 200
"""Of each store that can have them."""
MOST_LEFT_BYTES = 64 << 20
"""What the allocator may have kept; the faults' own blocks are 100 MB and more."""


def posix(folder: Path) -> PosixMedium:
    """Files of any mount."""
    return PosixMedium()


def usrbio(folder: Path) -> PosixMedium:
    """Rings of a mount like 3FS: operations begin when they are prepared, and end in any order."""
    return UsrbioMedium(library=FakeUsrbio(folder, habits=Habits(seed=1)), chunk_bytes=1 << 16)


MEDIA: dict[str, Callable[[Path], PosixMedium]] = {
    "threefs.posix": posix,
    "threefs.usrbio": usrbio,
}
STORES = ("core.memory", "core.disk", "core.tiered", "core.erasure", *MEDIA)


def in_folder(medium: Callable[[Path], PosixMedium], name: str, folder: Path) -> Target:
    """A store of ``deepinfer-threefs`` that looks at its files only when it is swept."""
    limits = Limits(
        capacity_bytes=CAPACITY_BYTES,
        retention_s={"agent": 1e6, "state": 1e6},
        young_s=0.0,
        age_step_s=3600.0,
    )
    below = folder / "store"
    place = StorePlace(folder=str(below), segment_bytes=1 << 20, durable=False, refresh_s=0)
    store = ThreefsStore(place, limits, medium=medium(folder))
    return Target(name=name, store=store, parts=(store,), folder=below)


def harmed(name: str, campaign: Campaign, seed: int) -> FaultReport:
    """What faults of a store lead to."""
    if name not in MEDIA:
        return run_campaign(name, campaign, seed)
    return damage_in_turn(partial(in_folder, MEDIA[name], name), campaign.damaged, seed)


def main() -> None:
    """Inject, count, compare."""
    parser = options(__doc__)
    parser.add_argument("--faults", type=int, default=20_000, help="in all, at least")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stores", nargs="+", default=STORES, help="names of components")
    args = parser.parse_args()
    damaged = max(1, args.faults // len(args.stores))
    campaign = Campaign(damaged=damaged, killed=KILLED, cut=CUT, full=FULL, slow=SLOW)
    # What is imported and allocated once is not left behind by faults.
    for name in args.stores:
        harmed(name, Campaign(damaged=200, slow=4), args.seed + 1)
    before, figures = left_behind(), []
    total: Counter[str] = Counter()
    for name in args.stores:
        report = harmed(name, campaign, args.seed)
        total.update(report.injected)
        figures.append(
            figure(
                f"store_faults.injected[store={name}]", report.injected.total(), "faults",
                bound={"name": "that no report counts", "value": 0}, uncounted=report.uncounted,
                wrong_blocks=0, injected=dict(report.injected), outcomes=dict(report.outcomes),
            )
        )  # fmt: skip
    left = left_behind().minus(before)
    figures.append(
        figure(
            "store_faults.left", left["resident_bytes"], "bytes",
            bound={"name": "what an allocator may keep", "value": MOST_LEFT_BYTES},
            faults=total.total(), descriptors=left["descriptors"], threads=left["threads"],
        )
    )  # fmt: skip
    write("store_faults.json", figures, is_record=args.record)
    uncounted = sum(int(str(one.get("uncounted", 0))) for one in figures)
    if uncounted or left["descriptors"] or left["resident_bytes"] > MOST_LEFT_BYTES:
        raise SystemExit("a fault was not counted, or something was left behind")


if __name__ == "__main__":
    main()
