"""How does the model call row-wise operators without carrying plans and buffers around?

Components write into buffers of their caller and run by plans made beforehand. The two classes here
own the plans of one model, make one when a step has a new size, and hand out fresh outputs. They
compute nothing.

Shapes: T rows, D width, S streams, M mixes, H heads, E experts, k experts a row, I expert width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.gemm import DenseGemm, DenseSpec
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.interfaces.transform import EngramHash, MixSpec, Transform, TransformSpec
from deepinfer_core.model.rope import Rotation
from deepinfer_core.numeric import QuantTensor

__all__ = ["Linear", "MixWeights", "Mixes", "Planned", "RowOperators", "torch_dtype"]

AnyPlan = TypeVar("AnyPlan", bound=Plan)


def torch_dtype(name: str) -> torch.dtype:
    """Look up a dtype by the name that interfaces use for it."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


class Planned(Generic[AnyPlan]):
    """The plans of one operator, one for each power of two of rows.

    Components choose tiles by the most rows of a plan, so a decode step must not run by the plan of
    a long prompt.

    Args:
        make: makes a plan for at most so many rows.
    """

    def __init__(self, make: Callable[[int], AnyPlan]) -> None:
        self._make = make
        self._plans: dict[int, AnyPlan] = {}

    def __call__(self, rows: int) -> AnyPlan:
        """Return the smallest plan for ``rows`` rows."""
        size = 1 << max(rows - 1, 0).bit_length()
        plan = self._plans.get(size)
        if plan is None:
            plan = self._plans[size] = self._make(size)
        return plan


class Linear:
    """A product with one weight.

    Args:
        gemm: runs it.
        weight: [N, K], or [groups * N, K] with groups stacked along the rows.
        activation_format: what the input is rounded to first.
        out_dtype: name of the dtype of results.
        groups: independent products of equal shape.

    Attributes:
        spec: what the product looks like.
        weight_format: number format of the weight.
        plan: gives the plan for so many rows.
    """

    def __init__(
        self,
        gemm: DenseGemm,
        weight: QuantTensor,
        *,
        activation_format: str,
        out_dtype: str,
        groups: int = 1,
    ) -> None:
        rows, in_width = weight.shape
        spec = DenseSpec(
            in_width=in_width,
            out_width=rows // groups,
            groups=groups,
            activation_format=activation_format,
            out_dtype=out_dtype,
        )
        self._gemm = gemm
        self._weight = gemm.prepare(weight)
        self.spec = spec
        self.weight_format = weight.format
        self.plan = Planned(lambda max_rows: gemm.plan(spec, max_rows))
        self._out_width = rows
        self._out_dtype = torch_dtype(out_dtype)

    def __call__(self, x_TK: torch.Tensor) -> torch.Tensor:
        """Return ``weight @ x`` of every row, [T, N] or [T, groups * N]."""
        rows = x_TK.shape[0]
        out_TN = torch.empty((rows, self._out_width), dtype=self._out_dtype, device=x_TK.device)
        self._gemm.run(self.plan(rows), x_TK, self._weight, out_TN)
        return out_TN


@dataclass(frozen=True, slots=True, kw_only=True)
class MixWeights:
    """What a sublayer computes its hyper-connection mixes with.

    Attributes:
        projection: of the flattened trunk, in the form that the component has prepared.
        base_M: offsets, fp32.
        scale_3: fp32 factors of the pre, post and comb mixes.
    """

    projection: torch.Tensor
    base_M: torch.Tensor
    scale_3: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixes:
    """Hyper-connection mixes of one sublayer, in the accumulation dtype.

    Attributes:
        pre_TS: how the *next* sublayer's input is collapsed.
        post_TS: how this sublayer's output is spread.
        comb_TSS: how the streams are mixed, [T, source, destination].
    """

    pre_TS: torch.Tensor
    post_TS: torch.Tensor
    comb_TSS: torch.Tensor


class RowOperators:
    """Every operator of the transform component, with outputs allocated in the right dtype.

    Args:
        transform: computes.
        spec: widths to plan for.
        mix: constants of the hyper-connections.
        numerics: fixes the dtypes.

    Attributes:
        streams: residual streams.
        plan: gives the plan for so many rows.
        compute: dtype of activations.
        accumulate: dtype of sums.
    """

    def __init__(
        self, transform: Transform, spec: TransformSpec, mix: MixSpec, numerics: Numerics
    ) -> None:
        self._transform = transform
        self._mix = mix
        self.streams = spec.streams
        self.plan = Planned(lambda max_rows: transform.plan(spec, max_rows))
        self.compute = torch_dtype(numerics.compute)
        self.accumulate = torch_dtype(numerics.accumulate)

    def norm(self, x_TD: torch.Tensor, weight_D: torch.Tensor) -> torch.Tensor:
        """Return the RMS norm of every row, in the compute dtype."""
        out_TD = torch.empty_like(x_TD, dtype=self.compute)
        plan = self.plan(x_TD.shape[0])
        self._transform.rms_norm(plan, x_TD, weight_D, self._mix.norm_eps, out_TD)
        return out_TD

    def add(self, x_TD: torch.Tensor, y_TD: torch.Tensor) -> torch.Tensor:
        """Return the sum of two accumulators in the compute dtype; may overwrite ``x_TD``."""
        out_TD = torch.empty_like(x_TD, dtype=self.compute)
        self._transform.add(self.plan(x_TD.shape[0]), x_TD, y_TD, out_TD)
        return out_TD

    def rotate(self, x_THD: torch.Tensor, by: Rotation, *, inverse: bool = False) -> torch.Tensor:
        """Rotate the last channels in place and return the same tensor."""
        plan = self.plan(x_THD.shape[0])
        self._transform.rope(plan, x_THD, by.cosine_TP, by.sine_TP, x_THD, inverse=inverse)
        return x_THD

    def round_trip(self, x_TD: torch.Tensor, number_format: str) -> torch.Tensor:
        """Return what rows become when they are stored in a format and read back."""
        out_TD = torch.empty_like(x_TD)
        self._transform.fake_quantise(self.plan(x_TD.shape[0]), x_TD, number_format, out_TD)
        return out_TD

    def mixes(self, trunk_TSD: torch.Tensor, weights: MixWeights) -> Mixes:
        """Compute a sublayer's mixes from the trunk."""
        rows, streams = trunk_TSD.shape[0], self.streams
        mixes = Mixes(
            pre_TS=self._accumulator(trunk_TSD, rows, streams),
            post_TS=self._accumulator(trunk_TSD, rows, streams),
            comb_TSS=self._accumulator(trunk_TSD, rows, streams, streams),
        )
        self._transform.mhc_mixes(
            self.plan(rows),
            trunk_TSD,
            weights.projection,
            weights.base_M,
            weights.scale_3,
            self._mix,
            mixes.pre_TS,
            mixes.post_TS,
            mixes.comb_TSS,
        )
        return mixes

    def collapse(self, trunk_TSD: torch.Tensor, pre_TS: torch.Tensor) -> torch.Tensor:
        """Return the weighted sum of the streams, [T, D]."""
        rows, _, width = trunk_TSD.shape
        out_TD = trunk_TSD.new_empty((rows, width))
        self._transform.mhc_collapse(self.plan(rows), trunk_TSD, pre_TS, out_TD)
        return out_TD

    def expand(self, trunk_TSD: torch.Tensor, y_TD: torch.Tensor, mixes: Mixes) -> None:
        """Mix the streams and add a sublayer's output to them, in place."""
        plan = self.plan(trunk_TSD.shape[0])
        self._transform.mhc_expand(plan, trunk_TSD, y_TD, mixes.post_TS, mixes.comb_TSS, trunk_TSD)

    def route(
        self,
        logits_TE: torch.Tensor,
        bias_E: torch.Tensor,
        image_bias_E: torch.Tensor,
        image_T: torch.Tensor,
        *,
        experts_per_row: int,
        scaling: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Choose experts: ids [T, k] and weights [T, k]."""
        rows = logits_TE.shape[0]
        expert_Tk = torch.empty((rows, experts_per_row), dtype=torch.int64, device=logits_TE.device)
        weight_Tk = self._accumulator(logits_TE, rows, experts_per_row)
        self._transform.gate_topk(
            self.plan(rows),
            logits_TE,
            bias_E,
            image_bias_E,
            image_T,
            scaling,
            expert_Tk,
            weight_Tk,
        )
        return expert_Tk, weight_Tk

    def swiglu(
        self, gate_up_R2I: torch.Tensor, route_R: torch.Tensor | None, limit: float
    ) -> torch.Tensor:
        """Return the expert activation [R, I], in the accumulation dtype."""
        rows, width = gate_up_R2I.shape
        out_RI = self._accumulator(gate_up_R2I, rows, width // 2)
        self._transform.swiglu(self.plan(rows), gate_up_R2I, route_R, limit, out_RI)
        return out_RI

    def engram_rows(self, compressed_TN: torch.Tensor, spec: EngramHash) -> torch.Tensor:
        """Hash n-grams to table rows, int64 [T, C]."""
        rows, columns = compressed_TN.shape[0], spec.prime_C.shape[0]
        row_TC = torch.empty((rows, columns), dtype=torch.int64, device=compressed_TN.device)
        self._transform.engram_rows(self.plan(rows), compressed_TN, spec, row_TC)
        return row_TC

    def engram_gate(
        self,
        trunk_TSD: torch.Tensor,
        key_TSD: torch.Tensor,
        value_TD: torch.Tensor,
        query_weight_SD: torch.Tensor,
        key_weight_SD: torch.Tensor,
        image_T: torch.Tensor,
    ) -> None:
        """Add the gated n-gram value to the trunk, in place."""
        self._transform.engram_gate(
            self.plan(trunk_TSD.shape[0]),
            trunk_TSD,
            key_TSD,
            value_TD,
            query_weight_SD,
            key_weight_SD,
            image_T,
            self._mix.norm_eps,
            trunk_TSD,
        )

    def _accumulator(self, like: torch.Tensor, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=self.accumulate, device=like.device)
