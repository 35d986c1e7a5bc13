"""The shipped checkpoint predicts held-out texts on the GPU as the committed baseline says."""

from pathlib import Path

import pytest
from deepinfer_core.config.checkpoints import shipped_checkpoints
from deepinfer_core.engine.gate.baseline_file import read_baselines

from deepinfer_core import cli

BASELINE = Path(__file__).parents[2] / "data" / "quality_gate.json"

pytestmark = [
    pytest.mark.skipif(
        not shipped_checkpoints(), reason="pip install -e plugins/deepinfer_tiny runs these"
    ),
    pytest.mark.skipif(
        "nvidia" not in read_baselines(BASELINE),
        reason="deepinfer eval refresh --set device=nvidia --reason '...' makes the baseline",
    ),
    pytest.mark.slow,
]


def test_likelihoods_are_those_of_the_baseline(capfd: pytest.CaptureFixture[str]) -> None:
    status = cli.main(("eval", "ppl", "--set", "device=nvidia", "--baseline", str(BASELINE)))
    shown = capfd.readouterr()
    assert status == 0, shown.out + shown.err
