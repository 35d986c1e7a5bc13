"""How many mistakes of a kernel's author do its cases notice?"""

from pathlib import Path

import pytest
from deepinfer_core.testing.kernel_survey import report, subjects
from deepinfer_core.testing.seeds import seed_of
from deepinfer_core.testing.tiles.survey import caught_share, survey
from deepinfer_nvidia.kernels.catalogue import catalogue

MISTAKES = 200
"""As many as the command judges for each seed."""


@pytest.mark.slow
def test_at_least_19_of_20_mistakes_are_noticed(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Other seeds, and more of them: ``python -m deepinfer_core.testing.kernel_survey``."""
    seed = seed_of(request)
    outcomes = survey(subjects(catalogue(), tmp_path, seed=0), seed=seed, count=MISTAKES)
    assert caught_share(outcomes) >= 0.95, report(outcomes, seed)
