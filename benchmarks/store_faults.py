"""What becomes of a store's blocks when 10,000 faults are injected?

Bits that flip in every field of records and in their data, torn writes and lost sectors, files that
are cut off, media without room, writers that are killed, tiers that hang or are slow
(``testing.store_faults``). A single wrong byte, a stored block that is gone, or a caller that waits
for a tier that hangs ends the run with an error; so the figures are of runs without any. They say
how many faults there were of each kind, what became of the blocks, how many faults no report
counted, and what the process has more of than before: descriptors, threads, memory.
"""

from collections import Counter

from deepinfer_core.testing.store_faults.campaign import Campaign, left_behind, run_campaign
from record import figure, options, write

STORES = ("core.memory", "core.disk", "core.tiered", "core.erasure")
KILLED, CUT, FULL, SLOW = 200, 100, 50, 200
"""Of each store that can have them."""
MOST_LEFT_BYTES = 64 << 20
"""What the allocator may have kept; the faults' own blocks are 100 MB and more."""


def main() -> None:
    """Inject, count, compare."""
    parser = options(__doc__)
    parser.add_argument("--faults", type=int, default=10_000, help="in all, at least")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stores", nargs="+", default=STORES, help="names of components")
    args = parser.parse_args()
    damaged = max(1, args.faults // len(args.stores))
    campaign = Campaign(damaged=damaged, killed=KILLED, cut=CUT, full=FULL, slow=SLOW)
    # What is imported and allocated once is not left behind by faults.
    for name in args.stores:
        run_campaign(name, Campaign(damaged=200, slow=4), args.seed + 1)
    before, figures = left_behind(), []
    total: Counter[str] = Counter()
    for name in args.stores:
        report = run_campaign(name, campaign, args.seed)
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
