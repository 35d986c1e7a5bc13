"""Which libraries of others compute what a kernel computes, to be timed next to it?

Only a library that is installed, in a release whose calls are known, is a peer; its results are not
compared. It does all that it takes to come from a case's arguments to its outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import importlib_metadata

from deepinfer_nvidia.probe import DEEP_GEMM, TILE_KERNELS

if TYPE_CHECKING:
    import torch

__all__ = ["Peer", "peer"]

Tensors = dict[str, "torch.Tensor"]

Peer = tuple[str, Callable[[Tensors], object]]
"""Name, and a call on the arguments of a case."""

_FORMATS = {
    "mxfp8": ("e4m3", 32, True, False),
    "mxfp4": ("e2m1", 32, True, False),
    "fp4_e4m3x16": ("e2m1", 16, False, True),
}
"""Data, channels of a group, whether scales are powers of two, and whether they are e4m3."""


def peer(operator: str, spec: Any) -> Peer | None:
    """The peer of an operator on this machine, or None.

    Args:
        operator: name of the kernel's file.
        spec: of the case.
    """
    found = _PEERS.get(operator)
    if found is None:
        return None
    library, known, make = found
    try:
        release = importlib_metadata.version(library).partition("+")[0]
    except importlib_metadata.PackageNotFoundError:
        return None
    call = make(spec) if release in known else None
    return None if call is None else (f"{library} {release}", call)


def _norm(spec: Any) -> Callable[[Tensors], object] | None:
    from tile_kernels.quant import norm_forward

    if not spec.dtype == spec.weight_dtype == spec.out_dtype:
        return None
    return lambda given: norm_forward(
        given["x_TD"], given["weight_D"], spec.eps, out=given["out_TD"]
    )


def _rotation(spec: Any) -> Callable[[Tensors], object]:
    import torch
    from tile_kernels.transform import apply_rotary

    def turn(given: Tensors) -> None:
        out_THD = given["out_THD"]
        if not spec.is_in_place:
            out_THD.copy_(given["x_THD"])
        angles = torch.cat((given["cosine_TP"], given["sine_TP"]), 1)
        turned = out_THD[..., spec.width - 2 * spec.pairs :]
        apply_rotary(turned, angles, interleaved=True, conjugate=spec.is_inverse)

    return turn


def _cast(spec: Any) -> Callable[[Tensors], object]:
    """In place, on whatever the output holds: as many bytes, and no sum that numbers change."""
    from tile_kernels.quant import per_token_cast_and_cast_back

    number, group, rounds, has_e4m3_scales = _FORMATS[spec.number_format]
    return lambda given: per_token_cast_and_cast_back(
        given["out_TD"], number, group, round_sf=rounds, use_e4m3_sf=has_e4m3_scales
    )


def _activation(spec: Any) -> Callable[[Tensors], object] | None:
    """Into new memory."""
    from tile_kernels.quant import swiglu_forward

    name = {"bfloat16": "bf16", "float32": "fp32"}[spec.out_dtype]
    return lambda given: swiglu_forward(
        given["gate_up_R2I"], name, topk_weights=given.get("route_R"), clamp_value=spec.limit
    )


def _routing(spec: Any) -> Callable[[Tensors], object]:
    from tile_kernels.moe import moe_topk_gate_forward

    return lambda given: moe_topk_gate_forward(
        given["logits_TE"], spec.chosen, False, 0, spec.scaling, 0,
        bias=given["bias_E"], image_bias=given["image_bias_E"], image_token_mask=given["image_T"],
        out=(given["expert_Tk"], given["weight_Tk"]),
    )  # fmt: skip


def _collapse(_spec: Any) -> Callable[[Tensors], object]:
    from tile_kernels.mhc import mhc_pre_apply_mix_fwd

    return lambda given: mhc_pre_apply_mix_fwd(given["trunk_TSD"], given["pre_TS"], given["out_TD"])


def _expansion(_spec: Any) -> Callable[[Tensors], object]:
    from tile_kernels.mhc import mhc_post_fwd

    return lambda given: mhc_post_fwd(
        given["y_TD"][None], given["trunk_TSD"][None], given["post_TS"][None, ..., None],
        given["comb_TSS"][None], out=given["out_TSD"][None],
    )  # fmt: skip


def _product(spec: Any) -> Callable[[Tensors], object] | None:
    from deep_gemm import bf16_gemm_nt, einsum

    if spec.groups == 1:
        return lambda given: bf16_gemm_nt(
            given["x_TGK"][:, 0], given["weight_GNK"][0], given["out_TGN"][:, 0]
        )
    if spec.out_dtype != "bfloat16":
        return None
    return lambda given: einsum(
        "bhr,hdr->bhd", given["x_TGK"], given["weight_GNK"], given["out_TGN"]
    )


_PEERS: dict[
    str, tuple[str, tuple[str, ...], Callable[[Any], Callable[[Tensors], object] | None]]
] = {
    "gemm_dense": ("deep_gemm", DEEP_GEMM, _product),
    "transform_cast": ("tile_kernels", TILE_KERNELS, _cast),
    "transform_gate_topk": ("tile_kernels", TILE_KERNELS, _routing),
    "transform_mhc_collapse": ("tile_kernels", TILE_KERNELS, _collapse),
    "transform_mhc_expand": ("tile_kernels", TILE_KERNELS, _expansion),
    "transform_rms_norm": ("tile_kernels", TILE_KERNELS, _norm),
    "transform_rope": ("tile_kernels", TILE_KERNELS, _rotation),
    "transform_swiglu": ("tile_kernels", TILE_KERNELS, _activation),
}
"""Library, releases whose calls are known, and what makes the call for a spec, by operator."""
