"""Does loading need memory for the model only once?"""

import json
import subprocess
import sys

import pytest
from deepinfer_core.weights.random_checkpoint import make_random_checkpoint
from deepinfer_core.weights.sized_config import config_of_size

SIZE_BYTES = 300_000_000


@pytest.mark.slow
def test_loading_takes_the_model_and_at_most_a_tenth_more(tmp_path):
    make_random_checkpoint(tmp_path / "x", config_of_size(SIZE_BYTES), shards=4)
    done = subprocess.run(
        [sys.executable, "-m", "deepinfer_core.testing.peak_memory", str(tmp_path / "x")],
        check=True,
        capture_output=True,
        text=True,
    )
    report = json.loads(done.stdout)
    assert report["model_bytes"] == pytest.approx(SIZE_BYTES, rel=0.01)
    # Measured from the size after the imports: torch alone would be most of this small model.
    # Headers, the table of tensors and freed pieces take a share that a second copy would exceed
    # many times over.
    added = report["peak_bytes"] - report["baseline_bytes"]
    read = report["model_bytes"] - report["mapped_bytes"]
    assert report["mapped_bytes"] > 0
    assert 0.95 * read < added < 1.10 * read
