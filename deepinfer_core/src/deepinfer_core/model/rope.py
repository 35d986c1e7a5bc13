"""By which angles does each position rotate the last channels of queries and keys?

There are two sets of frequencies. *Plain* ones serve the layers without compressed entries and the
drafter; *compressed* ones (another base, YaRN interpolation at all positions) serve everything in
the other layers. Frequencies and angles are fp32 in every numerics: near a million positions the
rounding of the product alone is worth 0.03 rad, so a wider type would be another model.

Shapes: T rows, P pairs of channels.

Source: DeepSeek-V4.1-Flash config (rope_theta, compress_rope_theta, rope_scaling).
"""

import math
from dataclasses import dataclass

import torch

__all__ = ["Rotation", "plain_frequencies", "rotation", "rotations", "yarn_frequencies"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """Cosines and sines of each row's angles, fp32 [T, P]."""

    cosine_TP: torch.Tensor
    sine_TP: torch.Tensor


def plain_frequencies(width: int, theta: float) -> torch.Tensor:
    """Return ``theta ** (-2 i / width)``, fp32 [width / 2]."""
    exponent_P = torch.arange(0, width, 2, dtype=torch.float32) / width
    return 1.0 / (theta**exponent_P)


def yarn_frequencies(
    width: int,
    theta: float,
    *,
    factor: float,
    beta_fast: float,
    beta_slow: float,
    original_max_positions: int,
) -> torch.Tensor:
    """Return plain frequencies, the slow ones divided by ``factor``, fp32 [width / 2].

    Between the channel that turns ``beta_fast`` times over the original length and the one that
    turns ``beta_slow`` times, a linear ramp blends the two.
    """

    def channel_of(turns: float) -> float:
        spread = math.log(original_max_positions / (turns * 2 * math.pi))
        return width * spread / (2 * math.log(theta))

    low = float(max(math.floor(channel_of(beta_fast)), 0))
    high = float(min(math.ceil(channel_of(beta_slow)), width - 1))
    if low == high:
        high += 0.001
    ramp_P = ((torch.arange(width // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    frequency_P = plain_frequencies(width, theta)
    return frequency_P / factor * ramp_P + frequency_P * (1 - ramp_P)


def rotation(position_T: torch.Tensor, frequency_P: torch.Tensor) -> Rotation:
    """Return the rotation of each row.

    The functions are evaluated in fp64 and rounded once, so that neither the number of rows nor a
    vector unit's handling of remainders can change a bit.
    """
    angle_TP = (position_T.to(torch.float32).unsqueeze(-1) * frequency_P).to(torch.float64)
    return Rotation(
        cosine_TP=angle_TP.cos().to(torch.float32), sine_TP=angle_TP.sin().to(torch.float32)
    )


def rotations(position_FT: torch.Tensor, frequency_FP: torch.Tensor) -> list[Rotation]:
    """Return ``rotation`` for each row of positions and the frequencies next to it, at once."""
    every = rotation(position_FT, frequency_FP[:, None])
    pairs = zip(every.cosine_TP.unbind(), every.sine_TP.unbind(), strict=True)
    return [Rotation(cosine_TP=cosine_TP, sine_TP=sine_TP) for cosine_TP, sine_TP in pairs]
