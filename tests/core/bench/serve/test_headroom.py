"""Does a generator notice that it has no time left?"""

import asyncio
import time

import pytest

pytest.importorskip("msgspec", reason="pip install 'deepinfer-core[bench]' runs these")

from deepinfer_core.bench.serve.headroom import Headroom, Watch


def watched(work: object) -> Headroom:
    async def run() -> Headroom:
        async with Watch() as watch:
            for _ in range(5):
                await asyncio.sleep(0.02)
                work()  # type: ignore[operator]
        return watch.found

    return asyncio.run(run())


def spin() -> None:
    """Hold the loop for 50 ms of processor time."""
    until_s = time.process_time() + 0.05
    while time.process_time() < until_s:
        pass


def test_work_that_holds_the_loop_is_seen_in_both_readings() -> None:
    found = watched(spin)
    # A timer of 10 ms falls due while the loop is held for 50 ms: 40 ms late, and later on a busy
    # machine. A quarter of a second of work in all.
    assert found.lag_p99_s >= 0.03
    assert found.busy_share > 0.0


def test_a_loop_that_only_waits_uses_little_of_its_core() -> None:
    assert watched(lambda: None).busy_share < 0.5
