"""How does the model call row-wise operators without carrying plans and buffers around?

As ``operators`` does for products. Where products want rounded rows, what hands rows to them rounds
them; else the rows go as they are.

Shapes: T rows, D width, S streams, M mixes, H heads, E experts, k experts a row, I expert width.
"""

import torch

from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.interfaces.transform import (
    EngramHash,
    MixSpec,
    Rounded,
    Transform,
    TransformSpec,
)
from deepinfer_core.model.activations import Activations, Mixes, MixWeights
from deepinfer_core.model.operators import Planned, torch_dtype
from deepinfer_core.model.rope import Rotation

__all__ = ["RowOperators"]


class RowOperators:
    """Every operator of the transform component, with outputs allocated in the right dtype.

    Args:
        transform: computes.
        spec: widths to plan for.
        mix: constants of the hyper-connections.
        numerics: fixes the dtypes.
        rounding: format that rows are rounded to for quantised products; None: these do it.

    Attributes:
        streams: residual streams.
        rounding: as given.
        plan: gives the plan for so many rows.
        compute: dtype of activations.
        accumulate: dtype of sums.
    """

    def __init__(
        self,
        transform: Transform,
        spec: TransformSpec,
        mix: MixSpec,
        numerics: Numerics,
        *,
        rounding: str | None = None,
    ) -> None:
        self._transform = transform
        self.rounding = rounding
        self._mix = mix
        self.streams = spec.streams
        self.plan = Planned(lambda max_rows: transform.plan(spec, max_rows))
        self.compute = torch_dtype(numerics.compute)
        self.accumulate = torch_dtype(numerics.accumulate)

    def for_products(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype in which quantised products are given rows that are made in another."""
        return dtype if self.rounding is None else torch.bfloat16

    def norm(self, x_TD: torch.Tensor, weight_D: torch.Tensor) -> torch.Tensor:
        """Return the RMS norm of every row, in the compute dtype."""
        out_TD = torch.empty_like(x_TD, dtype=self.compute)
        plan = self.plan(x_TD.shape[0])
        self._transform.rms_norm(plan, x_TD, weight_D, self._mix.norm_eps, out_TD)
        return out_TD

    def norm_for_product(self, x_TD: torch.Tensor, weight_D: torch.Tensor) -> torch.Tensor:
        """Return the RMS norm of rows in the compute dtype, as quantised products want it."""
        rounded = self._rounded(*x_TD.shape, like=x_TD)
        if rounded is None:
            return self.norm(x_TD, weight_D)
        plan, eps = self.plan(x_TD.shape[0]), self._mix.norm_eps
        self._transform.rms_norm_rounded(plan, x_TD, weight_D, eps, rounded)
        return rounded.out_TD

    def norm_rotate(self, x_TD: torch.Tensor, weight_D: torch.Tensor, by: Rotation) -> torch.Tensor:
        """Return the RMS norm of every row, as one head rotated, in the compute dtype."""
        return self._norm_rotate(x_TD, weight_D, by, None)

    def norm_and_rotate(
        self, x_TD: torch.Tensor, weight_D: torch.Tensor, by: Rotation
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the RMS norm of every row, and the same rotated, in the compute dtype."""
        normed_TD = torch.empty_like(x_TD, dtype=self.compute)
        return normed_TD, self._norm_rotate(x_TD, weight_D, by, normed_TD)

    def _norm_rotate(
        self,
        x_TD: torch.Tensor,
        weight_D: torch.Tensor,
        by: Rotation,
        normed_TD: torch.Tensor | None,
    ) -> torch.Tensor:
        out_TD = torch.empty_like(x_TD, dtype=self.compute)
        plan, eps = self.plan(x_TD.shape[0]), self._mix.norm_eps
        angles = by.cosine_TP, by.sine_TP
        self._transform.norm_rope(plan, x_TD, weight_D, eps, *angles, normed_TD, out_TD)
        return out_TD

    def rotate(self, x_THD: torch.Tensor, by: Rotation, *, inverse: bool = False) -> torch.Tensor:
        """Rotate the last channels in place and return the same tensor."""
        plan = self.plan(x_THD.shape[0])
        self._transform.rope(plan, x_THD, by.cosine_TP, by.sine_TP, x_THD, inverse=inverse)
        return x_THD

    def rotate_for_product(
        self, x_THD: torch.Tensor, by: Rotation, *, inverse: bool = False
    ) -> torch.Tensor:
        """Rotate and return rows [T, H * D] for a quantised product; overwrites ``x_THD``."""
        rows, heads, width = x_THD.shape
        rounded = self._rounded(rows, heads * width, like=x_THD)
        if rounded is None:
            return self.rotate(x_THD, by, inverse=inverse).flatten(1)
        angles = by.cosine_TP, by.sine_TP
        plan = self.plan(rows)
        self._transform.rope_rounded(plan, x_THD, *angles, rounded, inverse=inverse)
        return rounded.out_TD

    def for_product(self, x_TD: torch.Tensor) -> torch.Tensor:
        """Return rows as quantised products want them."""
        rounded = self._rounded(*x_TD.shape, like=x_TD)
        if rounded is None:
            return x_TD
        plan = self.plan(x_TD.shape[0])
        self._transform.fake_quantise(plan, x_TD, rounded.number_format, rounded.out_TD)
        return rounded.out_TD

    def rotate_round_trip(
        self, x_THD: torch.Tensor, by: Rotation, number_format: str
    ) -> torch.Tensor:
        """Rotate and return what becomes of the heads in a format; overwrites ``x_THD``."""
        out_THD = torch.empty_like(x_THD)
        rounded = Rounded(number_format=number_format, out_TD=out_THD.flatten(1))
        plan = self.plan(x_THD.shape[0])
        self._transform.rope_rounded(plan, x_THD, by.cosine_TP, by.sine_TP, rounded)
        return out_THD

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

    def enter(
        self, trunk_TSD: torch.Tensor, pre_TS: torch.Tensor, weight_D: torch.Tensor
    ) -> Activations:
        """Return ``collapse_norm``, and the same as quantised products want it."""
        rows, _, width = trunk_TSD.shape
        rounded = self._rounded(rows, width, like=trunk_TSD)
        plain_TD = self.collapse_norm(trunk_TSD, pre_TS, weight_D, rounded)
        return Activations(
            plain_TD=plain_TD, rounded_TD=plain_TD if rounded is None else rounded.out_TD
        )

    def collapse_norm(
        self,
        trunk_TSD: torch.Tensor,
        pre_TS: torch.Tensor,
        weight_D: torch.Tensor,
        rounded: Rounded | None = None,
    ) -> torch.Tensor:
        """Return the norm of the weighted sum of the streams, in the compute dtype."""
        rows, _, width = trunk_TSD.shape
        out_TD = torch.empty((rows, width), dtype=self.compute, device=trunk_TSD.device)
        plan, eps = self.plan(rows), self._mix.norm_eps
        self._transform.collapse_norm(plan, trunk_TSD, pre_TS, weight_D, eps, out_TD, rounded)
        return out_TD

    def expand_enter(
        self, trunk_TSD: torch.Tensor, y_TD: torch.Tensor, mixes: Mixes, weight_D: torch.Tensor
    ) -> Activations:
        """Mix the streams and add a sublayer's output to them, in place, and enter the next one.

        Args:
            trunk_TSD: residual streams, overwritten.
            y_TD: the output.
            mixes: of the sublayer; the next one's input is collapsed by them, too.
            weight_D: of the next one's norm.
        """
        rows, _, width = trunk_TSD.shape
        rounded = self._rounded(rows, width, like=trunk_TSD)
        normed_TD = torch.empty((rows, width), dtype=self.compute, device=trunk_TSD.device)
        self._transform.expand_norm(
            self.plan(rows),
            trunk_TSD,
            y_TD,
            mixes.post_TS,
            mixes.comb_TSS,
            mixes.pre_TS,
            weight_D,
            self._mix.norm_eps,
            trunk_TSD,
            normed_TD,
            rounded,
        )
        return Activations(
            plain_TD=normed_TD, rounded_TD=normed_TD if rounded is None else rounded.out_TD
        )

    def add_expand(
        self, trunk_TSD: torch.Tensor, x_TD: torch.Tensor, y_TD: torch.Tensor, mixes: Mixes
    ) -> None:
        """Mix the streams and add the sum of two accumulators to them, in place.

        May overwrite ``x_TD``.
        """
        plan = self.plan(trunk_TSD.shape[0])
        post_TS, comb_TSS = mixes.post_TS, mixes.comb_TSS
        self._transform.add_expand(plan, trunk_TSD, x_TD, y_TD, post_TS, comb_TSS, trunk_TSD)

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
        """Return the expert activation [R, I] for a quantised product."""
        rows, width = gate_up_R2I.shape
        plan = self.plan(rows)
        rounded = self._rounded(rows, width // 2, like=gate_up_R2I)
        if rounded is not None:
            self._transform.swiglu_rounded(plan, gate_up_R2I, route_R, limit, rounded)
            return rounded.out_TD
        out_RI = self._accumulator(gate_up_R2I, rows, width // 2)
        self._transform.swiglu(plan, gate_up_R2I, route_R, limit, out_RI)
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

    def _rounded(self, rows: int, width: int, *, like: torch.Tensor) -> Rounded | None:
        """Room for rows as quantised products want them, if they do not round themselves."""
        if self.rounding is None:
            return None
        out_TD = torch.empty((rows, width), dtype=torch.bfloat16, device=like.device)
        return Rounded(number_format=self.rounding, out_TD=out_TD)
