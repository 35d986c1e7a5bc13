"""The shipped checkpoint predicts held-out texts as the committed baseline says."""

from pathlib import Path

import pytest
from deepinfer_core.config.checkpoints import shipped_checkpoints

from deepinfer_core import cli

pytestmark = [
    pytest.mark.skipif(
        not shipped_checkpoints(), reason="pip install -e plugins/deepinfer_tiny runs these"
    ),
    pytest.mark.slow,
]

BASELINE = Path(__file__).parents[1] / "data" / "quality_gate.json"


# Conditions that must agree in every bit have the same numerics; each has one of the two.
@pytest.mark.parametrize("numerics", ["production", "semantic"])
def test_likelihoods_are_those_of_the_baseline(
    numerics: str, capfd: pytest.CaptureFixture[str]
) -> None:
    status = cli.main(("eval", "ppl", "--baseline", str(BASELINE), "--only", f"/{numerics}/"))
    shown = capfd.readouterr()
    assert status == 0, shown.out + shown.err
