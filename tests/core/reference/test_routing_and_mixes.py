"""Do routing weights and Sinkhorn's matrix keep their invariants for any logits?"""

import torch
from deepinfer_core.interfaces.transform import MixSpec
from deepinfer_core.reference.hyper_connections import sinkhorn
from deepinfer_core.reference.routing import choose_experts
from hypothesis import given
from hypothesis import strategies as st

# Quarters: their scores differ by more than a rounding, or are equal.
logits = st.lists(st.integers(-240, 240).map(lambda n: n / 4), min_size=16, max_size=16)


@given(values=logits)
def test_columns_of_the_mix_sum_to_one_for_any_logits(values: list[float]):
    spec = MixSpec(sinkhorn_iterations=20, eps=1e-6, norm_eps=1e-20)
    comb = sinkhorn(torch.tensor(values).view(1, 4, 4), spec)
    # eps = 1e-6 in a divisor of at least 4e-6 (each element is at least eps before the last step)
    # takes at most a fifth; the sum never exceeds one by more than a few roundings.
    assert bool((comb >= 0).all())
    assert bool((comb.sum(1) <= 1 + 1e-6).all())
    assert bool((comb.sum(1) >= 0.8 - 1e-6).all())


@given(values=logits)
def test_weights_sum_to_the_scaling_and_go_to_distinct_experts(values: list[float]):
    scores = torch.tensor([values])
    bias = torch.zeros(16)
    expert, weight = choose_experts(scores, bias, bias, torch.tensor([False]), 1.5, 6)
    assert len(set(expert[0].tolist())) == 6
    assert bool((weight >= 0).all())
    # Six fp32 additions and a division.
    assert abs(float(weight.sum()) - 1.5) <= 16 * 2.0**-24 * 1.5
    best = sorted(range(16), key=lambda e: (-values[e], e))[:6]
    assert {values[e] for e in best} == {values[e] for e in expert[0].tolist()}
