"""Temperatures: recovered from what they made, measured right, refused where blocks are few."""

from dataclasses import replace

import pytest
import torch
from deepinfer_core.testing.seeds import seed_of
from deepinfer_dspark.fitting import BlockRecords, calibration_error, fit, survival

TRUE = (2.0, 0.5, 1.5)
BLOCKS = 40_000


def drawn(seed: int, verified: int = 3) -> BlockRecords:
    """Blocks whose drafts are accepted with exactly the confidences of ``TRUE``."""
    generator = torch.Generator().manual_seed(seed)
    logit_Bn = 2 * torch.randn((BLOCKS, 3), generator=generator, dtype=torch.float64)
    chance_Bn = (logit_Bn / torch.tensor(TRUE)).sigmoid()
    right_Bn = torch.rand((BLOCKS, 3), generator=generator) < chance_Bn
    verified_B = torch.full((BLOCKS,), verified)
    accepted_B = right_Bn.long().cumprod(dim=1).sum(dim=1).minimum(verified_B)
    return BlockRecords(logit_Bn=logit_Bn, verified_B=verified_B, accepted_B=accepted_B)


def test_the_temperatures_that_made_the_outcomes_are_found(
    request: pytest.FixtureRequest,
) -> None:
    found = fit(drawn(seed_of(request)), (1.0, 1.0, 1.0))
    # The information about log T in one outcome is p (1 - p) (z / T)^2, 0.1 to 0.3 here in the
    # mean, times how often the draft is reached, 1 down to a quarter: at least 1000 in all blocks,
    # a standard error of at most 0.032. Five of them.
    assert found.temperatures == pytest.approx(TRUE, rel=0.16)


def test_calibration_errors_fall_to_what_chance_leaves(request: pytest.FixtureRequest) -> None:
    found = fit(drawn(seed_of(request)), (1.0, 1.0, 1.0))
    assert found.error_before[0] > 0.05
    # A bin of m outcomes misses by at most 0.5 / sqrt(m) in the mean; 15 bins of N outcomes
    # together by at most 0.5 sqrt(15 / N) = 0.0097 for N = 40,000.
    assert max(found.error_after) < 0.0097


def test_errors_before_are_those_of_the_temperatures_in_use(
    request: pytest.FixtureRequest,
) -> None:
    records = drawn(seed_of(request))
    found = fit(records, TRUE)
    assert max(found.error_before) < 0.0097


def test_drafts_that_were_not_verified_do_not_count_as_failed(
    request: pytest.FixtureRequest,
) -> None:
    """Two thirds of the blocks had one draft verified."""
    whole = drawn(seed_of(request))
    some_B = torch.arange(BLOCKS) % 3 > 0
    records = BlockRecords(
        logit_Bn=whole.logit_Bn,
        verified_B=whole.verified_B.where(~some_B, 1),
        accepted_B=whole.accepted_B.where(~some_B, whole.accepted_B.clamp(max=1)),
    )
    found = fit(records, TRUE)
    assert found.blocks == (BLOCKS, 13_334, 13_334)
    # As above with a third of the blocks: a standard error of at most 0.055.
    assert found.temperatures == pytest.approx(TRUE, rel=0.28)


@pytest.mark.parametrize("factor", [1.01, 1.02])
def test_a_temperature_lies_between_the_steps_of_the_search(
    request: pytest.FixtureRequest, factor: float
) -> None:
    """Logits that are larger by a factor take temperatures that are, and a step is 3.5 %."""
    records = drawn(seed_of(request))
    larger = replace(records, logit_Bn=records.logit_Bn * factor)
    found = fit(larger, TRUE).temperatures[0] / fit(records, TRUE).temperatures[0]
    # The cross-entropy is a parabola in log T up to its third derivative, which moves the lowest
    # point by less than a fiftieth of a step.
    assert found == pytest.approx(factor, rel=7e-4)


@pytest.mark.parametrize("blocks", [99, 100])
def test_a_hundred_blocks_that_tell_about_every_draft_are_needed(blocks: int) -> None:
    records = BlockRecords(
        logit_Bn=torch.zeros(200, 2, dtype=torch.float64),
        verified_B=torch.where(torch.arange(200) < blocks, 2, 1),
        accepted_B=torch.arange(200) % 2,
    )
    if blocks == 100:
        assert fit(records, (1.0, 1.0)).blocks == (200, 100)
    else:
        with pytest.raises(ValueError, match="draft 2 was verified 99 times, fewer than the 100"):
            fit(records, (1.0, 1.0))


@pytest.mark.parametrize(
    ("estimates", "outcomes", "error"),
    [
        ((0.5,) * 4, (0, 1, 0, 1), 0.0),
        ((1.0, 0.0), (1, 0), 0.0),
        ((1.0, 0.0), (0, 1), 1.0),
        ((0.51, 0.49), (1, 0), 0.0),  # one bin, from 7/15 to 8/15
        ((0.9, 0.1), (0.6, 0.3), 0.25),
    ],
)
def test_the_calibration_error_is_the_mean_gap_of_the_bins(
    estimates: tuple[float, ...], outcomes: tuple[float, ...], error: float
) -> None:
    found = calibration_error(torch.tensor(estimates), torch.tensor(outcomes))
    # Four numbers in fp32, each off by at most 6e-8.
    assert found == pytest.approx(error, abs=3e-7)


def test_survival_multiplies_scaled_confidences() -> None:
    logit_Bn = torch.tensor([[0.0, 2.0]])
    found = survival(logit_Bn, (1.0, 4.0))[0]
    assert found.tolist() == pytest.approx([0.5, 0.5 / (1 + 2.718281828459045**-0.5)], abs=1e-12)
