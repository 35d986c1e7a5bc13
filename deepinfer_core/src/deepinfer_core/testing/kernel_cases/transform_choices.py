"""Which inputs do the kernels of routing and of the n-gram memory get?

Shapes: T rows, E experts, k experts a row, N n-gram size, C hash columns, S streams, D width.
"""

from __future__ import annotations

from typing import Literal

import torch

from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.operators.transform import (
    EngramGateSpec,
    EngramRowsSpec,
    GateTopkSpec,
)
from deepinfer_core.interfaces.transform import EngramHash
from deepinfer_core.reference.transform import ReferenceTransform
from deepinfer_core.testing.kernel_cases.case import KernelCase, Tensors, poisoned
from deepinfer_core.testing.tolerance import roundoff

__all__ = ["cases"]

_TWIN = ReferenceTransform()
_PLAN = Plan(max_rows=1 << 20)
_U = roundoff(torch.float32)
_MANY = 4096
_VOCABULARY = 99092

Dtype = Literal["bfloat16", "float32"]


def cases() -> list[KernelCase]:
    """All cases of routing, hashes and gates."""
    return [
        _gate_topk(rows=5, experts=384, chosen=6),
        _gate_topk(rows=9, experts=40, chosen=6, has_ties=True),
        # Equal keys in more lanes than are dealt out again.
        _gate_topk(rows=6, experts=384, chosen=6, has_ties=True),
        _gate_topk(rows=3, experts=9, chosen=9),
        _gate_topk(rows=_MANY, experts=384, chosen=6, small=False),
        _engram_rows(rows=5, size=4, columns=24),
        _engram_rows(rows=70, size=3, columns=4),
        _engram_rows(rows=_MANY, size=4, columns=24, small=False),
        _engram_gate(rows=5, streams=4, width=128),
        _engram_gate(rows=2, streams=2, width=5120),
        _engram_gate(rows=6, streams=3, width=25, dtype="float32"),
        _engram_gate(rows=_MANY, streams=4, width=5120, small=False),
    ]


def _gate_topk(
    *, rows: int, experts: int, chosen: int, has_ties: bool = False, small: bool = True
) -> KernelCase:
    scaling = 1.5

    def arguments(generator: torch.Generator) -> Tensors:
        logits_TE = 3 * torch.randn(rows, experts, generator=generator)
        bias_E, image_bias_E = torch.randn(2, experts, generator=generator)
        # An expert that is never chosen, and one that always is.
        bias_E[0] = image_bias_E[-1] = -torch.inf
        bias_E[-1] = image_bias_E[0] = torch.inf
        if has_ties:
            # Few values, and no bias that could tell them apart.
            logits_TE, bias_E = logits_TE.round(), torch.zeros(experts)
            image_bias_E = bias_E - 100
            # Scores of zero, whose sum must not be divided by.
            logits_TE[-1] = -200
        return {
            "logits_TE": logits_TE,
            "bias_E": bias_E,
            "image_bias_E": image_bias_E,
            "image_T": torch.arange(rows) % 3 == 1,
            "expert_Tk": poisoned(rows, chosen, dtype=torch.int64),
            "weight_Tk": poisoned(rows, chosen, dtype=torch.float32),
        }

    def expect(given: Tensors) -> Tensors:
        expert_Tk, weight_Tk = given["expert_Tk"], given["weight_Tk"]
        _TWIN.gate_topk(
            _PLAN,
            given["logits_TE"],
            given["bias_E"],
            given["image_bias_E"],
            given["image_T"],
            scaling,
            expert_Tk,
            weight_Tk,
        )
        return {"expert_Tk": expert_Tk, "weight_Tk": weight_Tk}

    def bounds(given: Tensors, expected: Tensors) -> Tensors:
        # An exponential and a logarithm of 4 roundings each, a sum and a quotient make a score's
        # square, whose root halves that; then a sum of k, a quotient and a product. A rounding of
        # the exponent counts as often as the exponent is large, which shows below zero, and not
        # where the power itself is none.
        most_T1 = given["logits_TE"].clamp(-88, 0).abs().amax(1, keepdim=True)
        return {
            "weight_Tk": 2 * (8 + chosen + 4 + most_T1 / 2) * _U * expected["weight_Tk"].double()
        }

    return KernelCase(
        operator="transform_gate_topk",
        name=f"{chosen}-of-{experts}-rows-{rows}" + "-with-ties" * has_ties,
        spec=GateTopkSpec(experts=experts, chosen=chosen, scaling=scaling),
        arguments=arguments,
        expect=expect,
        bounds=bounds,
        small=small,
        moved_bytes=0 if small else rows * (4 * experts + 12 * chosen),
    )


def _engram_rows(*, rows: int, size: int, columns: int, small: bool = True) -> KernelCase:
    orders = tuple(2 + column * (size - 1) // columns for column in range(columns))
    primes = tuple(16000057 + 2 * column for column in range(columns))
    spec = EngramRowsSpec(
        multipliers=(76632096046245, 4839876093313, 35959672319349, 73987337458391)[:size],
        primes=primes,
        offsets=tuple(sum(primes[:column]) for column in range(columns)),
        orders=orders,
    )

    def arguments(generator: torch.Generator) -> Tensors:
        return {
            "compressed_TN": torch.randint(0, _VOCABULARY, (rows, size), generator=generator),
            "row_TC": poisoned(rows, columns, dtype=torch.int64),
        }

    def expect(given: Tensors) -> Tensors:
        hashing = EngramHash(
            multiplier_N=torch.tensor(spec.multipliers),
            prime_C=torch.tensor(spec.primes),
            offset_C=torch.tensor(spec.offsets),
            order_C=torch.tensor(spec.orders),
        )
        _TWIN.engram_rows(_PLAN, given["compressed_TN"], hashing, given["row_TC"])
        return {"row_TC": given["row_TC"]}

    return KernelCase(
        operator="transform_engram_rows",
        name=f"ids-{size}-columns-{columns}-rows-{rows}",
        spec=spec,
        arguments=arguments,
        expect=expect,
        small=small,
        moved_bytes=0 if small else 8 * rows * (size + columns),
    )


def _engram_gate(
    *, rows: int, streams: int, width: int, dtype: Dtype = "bfloat16", small: bool = True
) -> KernelCase:
    eps = 1e-20
    torch_dtype = torch.bfloat16 if dtype == "bfloat16" else torch.float32
    names = ("trunk_TSD", "key_TSD", "value_TD", "query_weight_SD", "key_weight_SD", "image_T")

    def arguments(generator: torch.Generator) -> Tensors:
        def noise(*shape: int, dtype: torch.dtype = torch_dtype) -> torch.Tensor:
            return torch.randn(*shape, generator=generator).to(dtype)

        trunk_TSD, key_TSD = noise(rows, streams, width), noise(rows, streams, width)
        # Nothing to divide by: the norm's epsilon decides.
        trunk_TSD[0, 0], key_TSD[2:3, 1] = 0, 0
        return {
            "trunk_TSD": trunk_TSD,
            "key_TSD": key_TSD,
            "value_TD": noise(rows, width),
            "query_weight_SD": noise(streams, width, dtype=torch.bfloat16),
            "key_weight_SD": noise(streams, width, dtype=torch.bfloat16),
            "image_T": torch.arange(rows) % 3 == 1,
            "out_TSD": poisoned(rows, streams, width, dtype=torch_dtype),
        }

    def expect(given: Tensors) -> Tensors:
        out_TSD = given["out_TSD"]
        trunk, key, value, query_weight, key_weight, image = (given[name] for name in names)
        _TWIN.engram_gate(_PLAN, trunk, key, value, query_weight, key_weight, image, eps, out_TSD)
        return {"out_TSD": out_TSD}

    def bounds(given: Tensors, expected: Tensors) -> Tensors:
        # Twin and kernel each have a sum of D products for the dot, and two of D / 2 + 4 relative
        # roundings for the norms. The root's slope is 1 / (2 root), the sigmoid's a quarter, and
        # the sigmoid itself has 8 roundings; then a product, a sum, and one rounding at the end.
        h, key, value, query, weight, image = (given[name].double() for name in names)
        term_TSD = h * query * weight * key
        square_TS = (h.square().mean(-1) + eps) * (key.square().mean(-1) + eps)
        norm_TS = square_TS.rsqrt() * width**-0.5
        size_TS = term_TSD.abs().sum(-1) * norm_TS
        root_TS = (term_TSD.sum(-1) * norm_TS).abs().clamp(min=1e-6).sqrt()
        dot_off_TS = (2 * width + 16) * _U * size_TS
        # A dot near zero may have moved the root by the root of the error.
        root_off_TS = torch.minimum(dot_off_TS / (2 * root_TS), dot_off_TS.sqrt()) + 4 * _U
        gate_off_TS = root_off_TS / 4 + 8 * _U
        added = (gate_off_TS[..., None] + 4 * _U) * value.abs()[:, None]
        added = (added + 2 * _U * h.abs()) * (1 - image)[:, None, None]
        final = roundoff(torch_dtype) * expected["out_TSD"].double().abs()
        return {"out_TSD": 2 * (added + final * (1 - image)[:, None, None])}

    return KernelCase(
        operator="transform_engram_gate",
        name=f"{dtype}-{streams}-streams-of-{width}-rows-{rows}",
        spec=EngramGateSpec(
            streams=streams,
            width=width,
            dtype=dtype,
            weight_dtype="bfloat16",
            norm_eps=eps,
            key_stride=streams * width,
            value_stride=width,
        ),
        arguments=arguments,
        expect=expect,
        bounds=bounds,
        small=small,
        moved_bytes=0 if small else rows * (3 * streams + 1) * width * torch_dtype.itemsize,
    )
