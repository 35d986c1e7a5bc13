"""How far may a result be from the exact one?

A bound is derived, not chosen: from the unit roundoff of the dtypes involved and the number of
operations, for any order of summation.

* A sum of n products in arithmetic with unit roundoff u is off by at most ``n * u`` times the
  sum of the absolute products (to first order in u; the bounds here add a margin of a few u).
* Rounding the result to its dtype adds that dtype's u times the result.
"""

import torch

__all__ = ["assert_within", "roundoff"]


def roundoff(dtype: torch.dtype) -> float:
    """Half the distance between 1 and the next number: 2^-9, 2^-24 or 2^-53."""
    return torch.finfo(dtype).eps / 2


def assert_within(got: torch.Tensor, want: torch.Tensor, bound: torch.Tensor | float) -> None:
    """Compare with an fp64 result, element by element.

    Args:
        got: any float dtype.
        want: fp64 oracle.
        bound: largest absolute difference; broadcasts.

    Raises:
        AssertionError: shows the worst element relative to its bound.
    """
    assert got.shape == want.shape, f"shape {tuple(got.shape)}, wanted {tuple(want.shape)}"
    if got.numel() == 0:
        return
    got = got.detach().cpu().to(torch.float64)
    limit = torch.as_tensor(bound, dtype=torch.float64).expand(want.shape)
    difference = (got - want).abs()
    # Not "difference > limit": a NaN must fail.
    is_wrong = ~((difference <= limit) | (got == want))
    if not bool(is_wrong.any()):
        return
    worst = (difference / limit.clamp(min=1e-300)).masked_fill(~is_wrong, -1)
    worst = worst.nan_to_num(nan=torch.inf, posinf=torch.inf)
    first = worst.reshape(-1).argmax()
    place = tuple(int(i) for i in torch.unravel_index(first, want.shape))
    raise AssertionError(
        f"{int(is_wrong.sum())} of {want.numel()} elements are off; the worst at {place}:"
        f" {got.reshape(-1)[first].item()!r}, wanted {want.reshape(-1)[first].item()!r}"
        f" within {limit.reshape(-1)[first].item():.3g}"
    )
