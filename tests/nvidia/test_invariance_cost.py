"""Does the benchmark of batch-invariant products say in words what it cannot run on?"""

import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "invariance_cost.py"


def test_a_device_that_is_not_there_is_said_in_words() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--scale", "small", "--set", "device=acme"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no loaded plugin offers device 'acme'")
