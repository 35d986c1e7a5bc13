"""Is anything wrong, lost or left behind when fetchers and their engines are killed 200 times?

    python benchmarks/fetcher_faults.py [--kills N] [--engine-kills N] [--seed N] [--record]

A small engine hands blocks over and fetches them, through a store on a disk, while its fetcher is
killed at random moments: while it starts, loads, writes or does nothing. Behind each kill every
prefix must have ended, every slot be empty, and no descriptor or segment be left; each block that
arrives is compared with what was stored under its key, and so is all of the store in the end. Then
engines are killed: each fetcher must end, and the store be whole.
"""

import tempfile
import time
from pathlib import Path

from deepinfer_core.testing.fetcher_kills import FetcherKills, KillReport, kill_engine
from deepinfer_core.testing.peak_memory import resident_bytes
from record import figure, options, write

WARM_UP_SHARE = 4
GROWTH_BOUND_BYTES = 4 << 20
"""Behind the first quarter of the kills. A leak of one segment, 0.8 MB, or of one thread's stack
pages at each kill would be several times as much."""


def kill_fetchers(folder: Path, kills: int, seed: int) -> tuple[KillReport, int, float]:
    """Kill the fetchers of one engine; what was seen, growth of its memory, and seconds taken."""
    began_s = time.monotonic()
    engine = FetcherKills(folder, seed)
    warm_bytes = 0
    while engine.report.kills < kills:
        engine.round()
        if engine.report.kills < kills / WARM_UP_SHARE:
            warm_bytes = resident_bytes("VmRSS")
    grown_bytes = resident_bytes("VmRSS") - warm_bytes
    if warm_bytes and grown_bytes > GROWTH_BOUND_BYTES:
        raise SystemExit(f"resident memory grew by {grown_bytes:,} bytes")
    engine.prove()
    engine.close()
    return engine.report, grown_bytes, time.monotonic() - began_s


def main() -> None:
    """Kill, and write down what was seen."""
    parser = options(__doc__)
    parser.add_argument("--kills", type=int, default=200, help="fetchers killed")
    parser.add_argument("--engine-kills", type=int, default=50, help="engines killed")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        report, grown_bytes, took_s = kill_fetchers(Path(name) / "one", given.kills, given.seed)
        kept = [
            kill_engine(Path(name) / "two", given.seed + number, 0.01 * (number % 40))
            for number in range(given.engine_kills)
        ]
    write(
        "fetcher_faults.json",
        [
            figure(
                "fetchers killed without a wrong block or anything left behind",
                report.kills,
                "kills",
                prefixes=dict(report.ended),
                arrived_blocks=report.arrived,
                written_blocks=dict(report.written),
                kept_blocks=report.kept,
                engine_grown_bytes=grown_bytes,
                seconds=round(took_s, 1),
            ),
            figure(
                "engines killed without a wrong block or a fetcher left behind",
                given.engine_kills,
                "kills",
                kept_blocks=max(kept, default=0),
            ),
        ],
        is_record=given.record,
    )


if __name__ == "__main__":
    main()
