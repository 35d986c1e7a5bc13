"""Which steps need their own device kernel because a compiler splits them into hundreds?

Sinkhorn (40 dependent normalisations of 4 x 4) and selection masks. The backward pass of Sinkhorn
walks the steps in reverse: the forward pass stores only the sums, each step is undone by one
multiplication.

Shapes: N tokens, S = 4 streams; rows of E entries.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

__all__ = ["SinkhornCuda", "top_mask_cuda"]

_TOKENS = 64  # tokens of one program; a token is a 4 x 4 tile


@triton.jit
def _sinkhorn_forward(
    logit_ptr, comb_ptr, sum_ptr, count, steps: tl.constexpr, eps, BLOCK: tl.constexpr
):
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = token < count
    m, n = tl.arange(0, 4), tl.arange(0, 4)
    place = token[:, None, None] * 16 + m[None, :, None] * 4 + n[None, None, :]
    x = tl.load(logit_ptr + place, mask=inside[:, None, None], other=0.0)
    x = tl.exp(x - tl.max(x, axis=2)[:, :, None])
    x = x / tl.sum(x, axis=2)[:, :, None] + eps
    for step in tl.static_range(steps):
        if step % 2 == 0:
            total = tl.sum(x, axis=1) + eps
            x = x / total[:, None, :]
        else:
            total = tl.sum(x, axis=2) + eps
            x = x / total[:, :, None]
        where = token[:, None] * (steps * 4) + step * 4 + m[None, :]
        tl.store(sum_ptr + where, total, mask=inside[:, None])
    tl.store(comb_ptr + place, x, mask=inside[:, None, None])


@triton.jit
def _sinkhorn_backward(
    comb_ptr, sum_ptr, grad_ptr, out_ptr, count, steps: tl.constexpr, eps, BLOCK: tl.constexpr
):
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = token < count
    m, n = tl.arange(0, 4), tl.arange(0, 4)
    place = token[:, None, None] * 16 + m[None, :, None] * 4 + n[None, None, :]
    x = tl.load(comb_ptr + place, mask=inside[:, None, None], other=0.0)
    g = tl.load(grad_ptr + place, mask=inside[:, None, None], other=0.0)
    for back in tl.static_range(steps):
        step = steps - 1 - back
        where = token[:, None] * (steps * 4) + step * 4 + m[None, :]
        total = tl.load(sum_ptr + where, mask=inside[:, None], other=1.0)
        if step % 2 == 0:
            g = (g - tl.sum(g * x, axis=1)[:, None, :]) / total[:, None, :]
            x = x * total[:, None, :]
        else:
            g = (g - tl.sum(g * x, axis=2)[:, :, None]) / total[:, :, None]
            x = x * total[:, :, None]
    soft = x - eps
    g = soft * (g - tl.sum(g * soft, axis=2)[:, :, None])
    tl.store(out_ptr + place, g, mask=inside[:, None, None])


class SinkhornCuda(torch.autograd.Function):
    """`sinkhorn.sinkhorn` for 4 streams on an NVIDIA device."""

    @staticmethod
    def forward(ctx, matrix_NSS, iterations, eps):
        matrix = matrix_NSS.contiguous()
        count, steps = matrix.shape[0], 2 * iterations - 1
        comb, sums = torch.empty_like(matrix), matrix.new_empty(count, steps, 4)
        grid = (triton.cdiv(count, _TOKENS),)
        _sinkhorn_forward[grid](matrix, comb, sums, count, steps, eps, _TOKENS)
        ctx.save_for_backward(comb, sums)
        ctx.eps = eps
        return comb

    @staticmethod
    def backward(ctx, grad):
        comb, sums = ctx.saved_tensors
        count, steps = sums.shape[:2]
        out = torch.empty_like(comb)
        grid = (triton.cdiv(count, _TOKENS),)
        _sinkhorn_backward[grid](comb, sums, grad.contiguous(), out, count, steps, ctx.eps, _TOKENS)
        return out, None, None


@triton.jit
def _top_mask(score_ptr, mask_ptr, k, width: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, width)
    score = tl.load(score_ptr + row * width + column)
    bits = score.to(tl.int32, bitcast=True)
    # -0.0 and 0.0 are one score; then order negative numbers by their flipped bits.
    bits = tl.where(score == 0.0, 0, bits)
    key = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    usable = score > float("-inf")
    key = tl.where(usable, key.to(tl.int64), -2147483648)
    low = tl.full((), -2147483648, tl.int64)
    for bit in range(32):
        trial = low + (tl.full((), 1, tl.int64) << (31 - bit))
        enough = tl.sum((key >= trial).to(tl.int32)) >= k
        low = tl.where(enough, trial, low)
    above = key > low
    equal = (key == low) & usable
    room = k - tl.sum(above.to(tl.int32))
    rank = tl.cumsum(equal.to(tl.int32), axis=0)
    chosen = above | (equal & (rank <= room))
    tl.store(mask_ptr + row * width + column, (chosen & usable).to(tl.int8))


def top_mask_cuda(score: torch.Tensor, k: int) -> torch.Tensor:
    """`selection.top_mask`; the last dimension must be a power of two."""
    flat = score.contiguous().flatten(0, -2)
    mask = torch.empty(flat.shape, dtype=torch.int8, device=score.device)
    _top_mask[(flat.shape[0],)](
        flat, mask, k, flat.shape[1], num_warps=4 if flat.shape[1] < 4096 else 8
    )
    return mask.view(score.shape).to(torch.bool)
