"""The examples run as they stand."""

import os
import subprocess
import sys
from pathlib import Path

import deepinfer_core

EXAMPLES = Path(deepinfer_core.__file__).parents[3] / "examples"


def test_the_offline_example_runs_to_its_end(byte_checkpoint: Path, tmp_path: Path) -> None:
    environ = {name: text for name, text in os.environ.items() if "DEEPINFER_" not in name}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "offline_inference.py"), str(byte_checkpoint)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environ,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n== ") == 4
    assert "tokens]" in done.stdout
