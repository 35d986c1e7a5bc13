"""Is the ratio rule right to the last bit, at the largest sums as well?"""

from fractions import Fraction

import pytest
import torch
from deepinfer_core.interfaces.sampler import DraftedRows
from deepinfer_core.reference.laws import WEIGHT_ONE
from deepinfer_core.reference.ratio_rule import keep_laws, ratio_rule

UNIT = 1 << 53


def in_fractions(
    weights: list[int], law: list[int], draft: int, acceptance_bits: int, residual_bits: int
) -> tuple[bool, int]:
    """The rule with numbers of any size."""
    p = [Fraction(v, sum(weights)) for v in weights]
    g = [Fraction(w, sum(law)) for w in law]
    if Fraction(acceptance_bits, UNIT) * g[draft] < p[draft]:
        return True, draft
    residual = [max(a - b, Fraction(0)) for a, b in zip(p, g, strict=True)]
    point, running = Fraction(residual_bits, UNIT) * sum(residual), Fraction(0)
    for token, mass in enumerate(residual):
        running += mass
        if running > point:
            return False, token
    raise AssertionError("the point lies behind the last token")


def laws(rows: int, vocabulary: int, generator: torch.Generator, spread: float) -> torch.Tensor:
    logits = spread * torch.randn(rows, vocabulary, generator=generator, dtype=torch.float64)
    return (logits.softmax(-1) * WEIGHT_ONE).floor().to(torch.int64)


@pytest.mark.parametrize("vocabulary", [1, 2, 7, 300])
@pytest.mark.parametrize("spread", [0.01, 1.0, 8.0])
def test_verdicts_and_tokens_are_those_of_exact_fractions(
    vocabulary: int, spread: float, generator: torch.Generator
) -> None:
    """A residual keeps 36 bits, so a point may lie on the other side of an edge once in 2^35."""
    rows = 60
    weight_RV = laws(rows, vocabulary, generator, spread)
    law_PV = keep_laws(laws(rows, vocabulary, generator, spread))
    draft_R = torch.randint(0, vocabulary, (rows,), generator=generator)
    bits_2R = torch.randint(0, UNIT, (2, rows), generator=generator)
    drafted = DraftedRows(draft_R=draft_R, law_row_R=torch.arange(rows), law_PV=law_PV)
    accepted_R, token_R, _ = ratio_rule(weight_RV, drafted, *bits_2R)
    for row in range(rows):
        want = in_fractions(
            weight_RV[row].tolist(),
            law_PV[row].tolist(),
            int(draft_R[row]),
            *bits_2R[:, row].tolist(),
        )
        assert (bool(accepted_R[row]), int(token_R[row])) == want


def test_the_largest_sums_do_not_overflow() -> None:
    """Two certain laws without a common token: the residual is 2^62."""
    weight_RV = torch.tensor([[WEIGHT_ONE, 0], [0, WEIGHT_ONE]])
    law_PV = keep_laws(torch.tensor([[0, WEIGHT_ONE], [0, WEIGHT_ONE]]))
    drafted = DraftedRows(
        draft_R=torch.tensor([1, 1]), law_row_R=torch.tensor([0, 1]), law_PV=law_PV
    )
    bits_R = torch.tensor([0, UNIT - 1])
    accepted_R, token_R, overlap_R = ratio_rule(weight_RV, drafted, bits_R, bits_R)
    assert accepted_R.tolist() == [False, True]
    assert token_R.tolist() == [0, 1]
    assert overlap_R.tolist() == [0, 1]


def test_a_kept_certainty_is_still_certain() -> None:
    """It fills all of int32 and no more."""
    assert keep_laws(torch.tensor([[0, WEIGHT_ONE]])).tolist() == [[0, 2**31 - 1]]
