"""Do two tensors hold the same bits?"""

import torch

__all__ = ["assert_same_bits"]


def assert_same_bits(got: torch.Tensor, want: torch.Tensor) -> None:
    """Compare dtype, shape and every bit: NaN equals the same NaN, zero differs from minus zero.

    Raises:
        AssertionError: says how many elements differ, and shows the first.
    """
    assert got.dtype == want.dtype, f"dtype {got.dtype}, wanted {want.dtype}"
    assert got.shape == want.shape, f"shape {tuple(got.shape)}, wanted {tuple(want.shape)}"
    got, want = got.detach().cpu().contiguous(), want.detach().cpu().contiguous()
    if got.numel() == 0:
        return
    size = got.element_size()
    differs = got.reshape(-1, 1).view(torch.uint8) != want.reshape(-1, 1).view(torch.uint8)
    wrong = differs.reshape(-1, size).any(1).nonzero()[:, 0]
    if wrong.numel() == 0:
        return
    first = int(wrong[0])
    place = tuple(int(i) for i in torch.unravel_index(wrong[0], got.shape))
    raise AssertionError(
        f"{wrong.numel()} of {got.numel()} elements differ; the first at {place}:"
        f" {got.reshape(-1)[first].item()!r}, wanted {want.reshape(-1)[first].item()!r}"
    )
