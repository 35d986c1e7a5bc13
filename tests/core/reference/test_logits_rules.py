"""Are logits masked, biased and penalised as the rules say?"""

from typing import Any

import pytest
import torch
from deepinfer_core.interfaces.sampler import SamplerRows
from deepinfer_core.reference.logits_rules import adjusted
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.sampler_settings import Settings, sampler_rows
from deepinfer_core.testing.oracles import sampling as oracle

INF = float("inf")


def rows(*settings: Settings, allowed: list[list[int]] | None = None) -> SamplerRows:
    return sampler_rows(list(settings), allowed, "cpu")


def test_without_rules_the_logits_come_back_untouched() -> None:
    logits = torch.tensor([[1.0, -0.0, -INF]])
    assert adjusted(logits, rows(Settings())) is logits


def test_the_input_is_read_only() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0]])
    before = logits.clone()
    adjusted(logits, rows(Settings(bias={0: 5}, seen={2: 1}, presence=1), allowed=[[0, 2]]))
    assert_same_bits(logits, before)


def test_a_worked_example_in_the_order_of_the_interface() -> None:
    # Token 0: (4 + 2) / 2 - 3 * 0.5 - 0.25. Token 1: (-3 + 1) * 2, only in the prompt.
    # Token 2: masked. Token 3: never seen. Token 4: -2 * 2 - 0.5 - 0.25.
    settings = Settings(
        bias={0: 2.0, 1: 1.0, 2: 50.0},
        seen={0: 3, 1: 0, 2: 1, 4: 1},
        repetition=2.0,
        frequency=0.5,
        presence=0.25,
    )
    logits = torch.tensor([[4.0, -3.0, 9.0, 1.5, -2.0]])
    found = adjusted(logits, rows(settings, allowed=[[0, 1, 3, 4]]))
    assert found.tolist() == [[1.25, -4.0, -INF, 1.5, -4.75]]


@pytest.mark.parametrize("repetition", [0.5, 1.0, 3.0])
def test_a_token_without_probability_stays_without(repetition: float) -> None:
    settings = Settings(bias={0: 100.0}, seen={0: 2}, repetition=repetition, presence=-2.0)
    assert adjusted(torch.tensor([[-INF, 0.0]]), rows(settings))[0, 0] == -INF


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_with_shorter_lists_keep_their_bits(
    dtype: torch.dtype, generator: torch.Generator
) -> None:
    logits = torch.randn(3, 70, generator=generator, dtype=dtype)
    plain = Settings()
    short = Settings(bias={69: 0.3}, seen={0: 1}, repetition=1.1, frequency=0.1, presence=0.7)
    long = Settings(bias=dict.fromkeys(range(40), 1.0), seen=dict.fromkeys(range(60), 2))
    together = adjusted(logits, rows(plain, short, long))
    assert together.dtype == dtype
    assert_same_bits(together[0], logits[0])
    assert_same_bits(together[1], adjusted(logits[1:2], rows(short))[0])
    assert_same_bits(together[2], adjusted(logits[2:], rows(long))[0])


def test_random_rules_match_the_token_by_token_rule(generator: torch.Generator) -> None:
    logits = 4 * torch.randn(5, 64, generator=generator, dtype=torch.float64)
    numbers = torch.randint(0, 4, (5, 64), generator=generator).tolist()
    cases: list[dict[str, Any]] = [
        {
            "bias": {token: k - 1.5 for token, k in enumerate(row) if k},
            "seen": {token: k for token, k in enumerate(reversed(row)) if token % 3},
            "repetition": 0.75 + place / 2,
            "frequency": place / 4 - 0.5,
            "presence": 0.5 - place / 8,
        }
        for place, row in enumerate(numbers)
    ]
    found = adjusted(logits, rows(*(Settings(**case) for case in cases)))
    want = [oracle.adjusted(row, **case) for row, case in zip(logits.tolist(), cases, strict=True)]
    # Five roundings of numbers below 64 in fp64: 5 * 2^-53 * 64 = 3.6e-14.
    assert found.flatten().tolist() == pytest.approx(
        [x for row in want for x in row], abs=4e-14, rel=0
    )
