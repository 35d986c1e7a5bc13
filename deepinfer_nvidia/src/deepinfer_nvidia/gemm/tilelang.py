"""How are products with weights computed on an NVIDIA GPU?

Dense weights are widened to bf16 once; MXFP4 experts stay packed and are widened in the kernel.
Both are exact, sums are fp32, and K is walked in one order, so a row's bits depend on that row
alone.
Rows that a spec wants rounded first are cast by a kernel of their own, which the model spares by
handing over rounded rows.

Shapes: T rows, R rows sorted by expert, K input width, N output width, G groups, E experts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.component import Plan, Properties
from deepinfer_core.interfaces.gemm import (
    DenseGemm,
    DenseSpec,
    GroupedGemm,
    GroupedSpec,
    PreparedWeight,
)
from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.interfaces.operators.gemm import (
    GemmDenseSpec,
    GemmExpertsSpec,
    GemmSmallF32Spec,
)
from deepinfer_core.numeric import QuantTensor, number_format
from deepinfer_core.plugin import BuildContext

from deepinfer_nvidia.device.gpu import gpu_of
from deepinfer_nvidia.gemm import weights
from deepinfer_nvidia.kernels.arguments import check, dtype_name, strided_rows
from deepinfer_nvidia.kernels.choice import Target, choose
from deepinfer_nvidia.kernels.launch import Wanted, kernels_for, launches
from deepinfer_nvidia.transform.forms import cast_kernel

__all__ = ["TileLangGemm", "build"]

_BF16 = torch.bfloat16


@dataclass(frozen=True, kw_only=True)
class _DensePlan(Plan):
    spec: DenseSpec


@dataclass(frozen=True, kw_only=True)
class _GroupedPlan(Plan):
    spec: GroupedSpec


class TileLangGemm(DenseGemm, GroupedGemm):
    """Products in bf16 with fp32 sums; fp32 rows or weights are multiplied in fp32.

    Args:
        kernels: runs them.
        is_hopper: use what is written for Hopper: MXFP4 experts in the order of registers, for bf16
            rows only, and a kernel for many rows. Without it every kernel is in TileLang.
        cores: streaming multiprocessors of the device.
    """

    def __init__(self, kernels: Kernels, *, is_hopper: bool = False, cores: int = 132) -> None:
        self._kernels = kernels
        self._target = Target(is_hopper=is_hopper, cores=cores)
        self._cast = launches(kernels, cast_kernel)
        self._dense = launches(kernels, partial(_dense_kernel, self._target))
        self._small = launches(kernels, partial(_small_kernel, self._target))
        self._experts = launches(kernels, partial(_experts_kernel, self._target))

    @property
    def properties(self) -> Properties:
        """The promises of this component."""
        return Properties(batch_invariant="always", deterministic="always", graph_safe="always")

    @property
    def kernels_built(self) -> int | None:
        """Kernels that were compiled or loaded so far."""
        return self._kernels.built

    @property
    def wants_rounded_rows(self) -> bool:
        """Rounding is a kernel of its own here."""
        return True

    def prepare(self, weight: QuantTensor) -> PreparedWeight:
        """Take over a weight [N, K], or groups stacked along the rows."""
        return weights.widen(weight)

    def prepare_experts(self, weight: QuantTensor) -> PreparedWeight:
        """Take over stacked weights [E, N, K]."""
        if weight.format != "mxfp4":
            return weights.widen(weight)
        return weights.pack(weight) if self._target.is_hopper else weights.store(weight)

    def plan(self, spec: DenseSpec, max_rows: int) -> Plan:
        """Remember the sizes; tiles follow from them when a product is first launched.

        Raises:
            NotSupported: an unknown format, a width of partial groups, or fp64.
        """
        _check(spec)
        return _DensePlan(max_rows=max_rows, spec=spec)

    def plan_experts(self, spec: GroupedSpec, max_rows: int) -> Plan:
        """Remember the sizes; tiles follow from the layout of the weights too.

        Raises:
            NotSupported: as in ``plan``.
        """
        _check(spec)
        return _GroupedPlan(max_rows=max_rows, spec=spec)

    def run(
        self, plan: Plan, x_TK: torch.Tensor, weight: PreparedWeight, out_TN: torch.Tensor
    ) -> None:
        """Multiply; the group is an axis of the grid."""
        assert isinstance(plan, _DensePlan)
        assert isinstance(weight, weights.PlainWeight)
        spec, rows = plan.spec, x_TK.shape[0]
        if not rows:
            return
        x_TK = self._rounded(x_TK, spec.activation_format)
        groups, out_width, in_width = spec.groups, spec.out_width, spec.in_width
        tensors = {
            "x_TGK": check(x_TK, x_TK.dtype, rows, groups * in_width).view(rows, groups, in_width),
            "weight_GNK": weight.values.view(groups, out_width, in_width),
            "out_TGN": _out(out_TN, spec.out_dtype, rows, groups * out_width).view(
                rows, groups, out_width
            ),
        }
        sizes, dtype = (in_width, out_width, groups), weight.values.dtype
        if x_TK.dtype is _BF16 and dtype is _BF16:
            multiply = self._dense(sizes, spec.out_dtype, plan.max_rows)
        else:
            multiply = self._small(sizes, x_TK.dtype, dtype, spec.out_dtype)
        multiply(**tensors)

    def run_experts(
        self,
        plan: Plan,
        x_RK: torch.Tensor,
        weight: PreparedWeight,
        ends_E: torch.Tensor,
        out_RN: torch.Tensor,
    ) -> None:
        """Multiply; blocks find their expert in the ends, on the device."""
        assert isinstance(plan, _GroupedPlan)
        spec, rows = plan.spec, x_RK.shape[0]
        if not rows or not spec.experts:
            return
        x_RK = self._rounded(x_RK, spec.activation_format)
        if isinstance(weight, weights.PlainWeight) and weight.values.dtype is torch.float32:
            x_RK = x_RK.to(torch.float32)
        form, expert_tensors = _expert_arguments(weight, x_RK.dtype)
        sizes = spec.experts, spec.in_width, spec.out_width
        multiply = self._experts(sizes, x_RK.dtype, form, spec.out_dtype, plan.max_rows)
        multiply(
            x_RK=check(x_RK, x_RK.dtype, rows, spec.in_width),
            ends_E=check(ends_E, torch.int64, spec.experts),
            out_RN=_out(out_RN, spec.out_dtype, rows, spec.out_width),
            **expert_tensors,
        )

    def _rounded(self, x: torch.Tensor, activation_format: str) -> torch.Tensor:
        if number_format(activation_format).is_plain:
            return x.contiguous()
        x_TD, row_stride = strided_rows(x)
        # Whatever the rows were: their values now fit into bf16, and are multiplied faster there.
        out_TD = torch.empty(x.shape, dtype=_BF16, device=x.device)
        cast = self._cast(x.shape[1], x.dtype, _BF16, activation_format, row_stride)
        cast(x_TD=x_TD, out_TD=out_TD)
        return out_TD


def build(options: None, context: BuildContext) -> TileLangGemm:
    """Build the component for both slots of gemm; it has no options.

    Args:
        options: None.
        context: fp32 rows need experts in the layout of the checkpoint.
    """
    gpu = gpu_of(context)
    return TileLangGemm(
        kernels_for(context),
        is_hopper=gpu.is_hopper and context.needs.compute == "bfloat16",
        cores=gpu.cores,
    )


def _dense_kernel(
    target: Target, sizes: tuple[int, int, int], out_dtype: str, max_rows: int
) -> Wanted:
    in_width, out_width, groups = sizes
    spec = GemmDenseSpec(in_width=in_width, out_width=out_width, groups=groups, out_dtype=out_dtype)
    choice = choose("gemm_dense", spec, target, max_rows)
    return choice.build, spec, choice.tuning


def _small_kernel(
    target: Target,
    sizes: tuple[int, int, int],
    x_dtype: torch.dtype,
    weight_dtype: torch.dtype,
    out_dtype: str,
) -> Wanted:
    in_width, out_width, groups = sizes
    spec = GemmSmallF32Spec(
        in_width=in_width,
        out_width=out_width,
        groups=groups,
        x_dtype=dtype_name(x_dtype),
        weight_dtype=dtype_name(weight_dtype),
        out_dtype=out_dtype,
    )
    choice = choose("gemm_small_f32", spec, target)
    return choice.build, spec, choice.tuning


def _experts_kernel(
    target: Target,
    sizes: tuple[int, int, int],
    x_dtype: torch.dtype,
    weight_format: str,
    out_dtype: str,
    max_rows: int,
) -> Wanted:
    experts, in_width, out_width = sizes
    spec = GemmExpertsSpec(
        experts=experts,
        in_width=in_width,
        out_width=out_width,
        x_dtype=dtype_name(x_dtype),
        weight_format=weight_format,
        out_dtype=out_dtype,
    )
    choice = choose("gemm_experts", spec, target, max_rows)
    return choice.build, spec, choice.tuning


def _expert_arguments(
    weight: PreparedWeight, x_dtype: torch.dtype
) -> tuple[str, dict[str, torch.Tensor]]:
    """Name of the format, and the tensors of the weight."""
    if isinstance(weight, weights.StoredExperts):
        stored = weight.stored
        assert stored.scale is not None
        return stored.format, {"weight_ENC": stored.data, "scale_ENG": stored.scale}
    if isinstance(weight, weights.PackedExperts):
        if x_dtype is not _BF16:
            raise NotSupported(
                f"asked for {x_dtype} rows with experts packed for Hopper, found bfloat16",
                hint="set numerics.compute to bfloat16, or keep the experts as stored",
            )
        return "mxfp4", {"weight_P": weight.packed}
    assert isinstance(weight, weights.PlainWeight)
    return dtype_name(weight.values.dtype), {"weight_ENK": weight.values}


def _check(spec: DenseSpec | GroupedSpec) -> None:
    number_format(spec.activation_format).row_bytes(spec.in_width)
    if spec.out_dtype not in ("bfloat16", "float32") or spec.activation_format == "float64":
        raise NotSupported(
            f"asked for {spec.out_dtype} products of {spec.activation_format} rows, found kernels"
            " for bfloat16 and float32",
            hint="core.reference computes in every dtype",
        )


def _out(out: torch.Tensor, dtype: str, rows: int, width: int) -> torch.Tensor:
    return check(out, torch.bfloat16 if dtype == "bfloat16" else torch.float32, rows, width)
