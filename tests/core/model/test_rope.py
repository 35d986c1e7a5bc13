"""Are positions turned by the published frequencies?"""

import pytest
import torch
from deepinfer_core.model.rope import plain_frequencies, rotation, yarn_frequencies
from deepinfer_core.reference.transform import ReferenceTransform

FULL = {
    0: (1.0, 1.0),
    1: (6.87656045e-1, 7.49894202e-1),
    14: (5.28685655e-3, 1.77827943e-2),
    15: (3.63553851e-3, 1.33352149e-2),
    16: (2.26562493e-3, 9.99999978e-3),
    20: (2.96977785e-4, 3.16227786e-3),
    24: (1.95312532e-5, 1.00000005e-3),
    25: (5.37231244e-6, 7.49894185e-4),
    31: (5.68052940e-7, 1.33352150e-4),
}
TINY = (1, 1.677051e-1, 2.5e-2, 2.795085e-3, 6.25e-4, 1.397543e-4, 3.125e-5, 6.987713e-6)

# The figures have nine digits, an fp32 number has a relative step of up to 1.2e-7.
FULL_TOLERANCE = 1e-7
TINY_TOLERANCE = 5e-7  # seven digits


def full_frequencies() -> torch.Tensor:
    return yarn_frequencies(
        64, 160000, factor=16, beta_fast=32, beta_slow=1, original_max_positions=65536
    )


@pytest.mark.parametrize("pair", FULL)
def test_the_full_model_turns_each_pair_as_published(pair: int) -> None:
    compressed, plain = FULL[pair]
    assert full_frequencies()[pair].item() == pytest.approx(compressed, rel=FULL_TOLERANCE)
    assert plain_frequencies(64, 10000)[pair].item() == pytest.approx(plain, rel=FULL_TOLERANCE)


def test_the_tiny_model_turns_each_pair_as_published() -> None:
    found = yarn_frequencies(
        16, 160000, factor=4, beta_fast=32, beta_slow=1, original_max_positions=512
    )
    assert found.tolist() == pytest.approx(TINY, rel=TINY_TOLERANCE)


def test_frequencies_and_angles_are_fp32() -> None:
    assert full_frequencies().dtype == torch.float32
    turned = rotation(torch.tensor([1_000_003]), full_frequencies())
    assert turned.cosine_TP.dtype == torch.float32
    angle = torch.tensor(1_000_003.0) * full_frequencies()[1]
    assert turned.cosine_TP[0, 1] == angle.double().cos().float()


def test_a_ramp_without_width_does_not_divide_by_zero() -> None:
    # Both bounds are clipped to channel 0 when even the fastest pair turns too rarely.
    found = yarn_frequencies(
        16, 160000, factor=4, beta_fast=32, beta_slow=31.9, original_max_positions=4
    )
    assert bool(found.isfinite().all())


def test_a_known_vector_turns_to_known_values_at_position_3() -> None:
    x_THD = (torch.arange(1, 65) / 64).view(1, 1, 64)
    turned = rotation(torch.tensor([3]), plain_frequencies(64, 10000))
    transform = ReferenceTransform()
    out_THD = torch.empty_like(x_THD)
    transform.rope(None, x_THD, turned.cosine_TP, turned.sine_TP, out_THD)  # type: ignore[arg-type]
    first = [-0.01988, -0.02873, -0.07808, -0.00276, -0.10218, 0.06673]
    # Five decimals are given.
    assert out_THD[0, 0, :6].tolist() == pytest.approx(first, abs=6e-6)
    assert out_THD[0, 0, -2:].tolist() == pytest.approx([0.98397, 1.00039], abs=6e-6)


def test_position_0_turns_nothing() -> None:
    turned = rotation(torch.tensor([0]), full_frequencies())
    assert bool((turned.cosine_TP == 1).all())
    assert not turned.sine_TP.any()


def test_a_position_turns_the_same_in_every_batch() -> None:
    all_at_once = rotation(torch.arange(70), full_frequencies())
    for position in range(70):
        alone = rotation(torch.tensor([position]), full_frequencies())
        assert torch.equal(alone.cosine_TP[0], all_at_once.cosine_TP[position])
        assert torch.equal(alone.sine_TP[0], all_at_once.sine_TP[position])
