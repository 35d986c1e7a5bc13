"""How does a row pass through its experts?

Every layer has routed experts and one shared expert of the same width. The routing weight
multiplies the activation before the second product, and so before that product's input is rounded.

Shapes: T rows, D hidden width, E experts, k experts a row, R dispatched rows, I expert width.
"""

from dataclasses import dataclass

import torch

from deepinfer_core.interfaces.all_to_all import AllToAll, ExchangeSpec
from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.device import Device
from deepinfer_core.interfaces.gemm import GroupedGemm, GroupedSpec
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.activations import Activations
from deepinfer_core.model.context import Probe
from deepinfer_core.model.operators import Linear, Planned, torch_dtype
from deepinfer_core.model.row_operators import RowOperators
from deepinfer_core.numeric import QuantTensor

__all__ = ["Experts", "Mixture", "Router", "SharedExpert"]


class Experts:
    """The routed experts of one layer and the exchange that brings rows to them.

    Args:
        exchange: carries rows to their experts and back.
        gemm: multiplies.
        gate_up: stacked first weights [E, 2 * I, D], gate above up.
        down: stacked second weights [E, D, I].
        experts_per_row: k.
        numerics: fixes dtypes.
        product_format: what the products are asked to round their rows to.

    Attributes:
        exchange_spec: what the exchange looks like.
        width: I.
        gate_up_plan, down_plan: give the plans of the two products for so many rows.
    """

    def __init__(
        self,
        exchange: AllToAll,
        gemm: GroupedGemm,
        gate_up: QuantTensor,
        down: QuantTensor,
        *,
        experts_per_row: int,
        numerics: Numerics,
        product_format: str,
    ) -> None:
        count, double_width, hidden_width = gate_up.shape
        self._exchange = exchange
        self._gemm = gemm
        self._gate_up = gemm.prepare_experts(gate_up)
        self._down = gemm.prepare_experts(down)
        self._widths = (double_width, hidden_width)
        self.width = double_width // 2
        self._accumulate = torch_dtype(numerics.accumulate)
        self.exchange_spec = ExchangeSpec(
            experts=count,
            experts_per_row=experts_per_row,
            width=hidden_width,
            compute=numerics.compute,
        )
        self._product_format = product_format
        self._exchange_plan: Planned[Plan] = Planned(
            lambda rows: exchange.plan(self.exchange_spec, rows)
        )
        self.gate_up_plan = self._product(numerics, count, hidden_width, double_width)
        self.down_plan = self._product(numerics, count, self.width, hidden_width)

    def __call__(
        self,
        x_TD: torch.Tensor,
        expert_Tk: torch.Tensor,
        weight_Tk: torch.Tensor,
        rows: RowOperators,
        limit: float,
    ) -> torch.Tensor:
        """Return the sum of each row's experts, [T, D] in the accumulation dtype.

        Args:
            x_TD: rows for quantised products.
            expert_Tk: experts of each row.
            weight_Tk: their routing weights.
            rows: row operators.
            limit: of the activation.
        """
        plan = self._exchange_plan(x_TD.shape[0])
        sent = self._exchange.dispatch(plan, x_TD, expert_Tk, weight_Tk)
        gate_up_R2I = self.gate_up(sent.x_RD, sent.ends_E)
        y_RD = self.down(rows.swiglu(gate_up_R2I, sent.weight_R, limit), sent.ends_E)
        out_TD = torch.empty_like(x_TD, dtype=self._accumulate)
        self._exchange.combine(plan, y_RD, sent, out_TD)
        return out_TD

    def gate_up(self, x_RD: torch.Tensor, ends_E: torch.Tensor) -> torch.Tensor:
        """Multiply rows, sorted by expert, with the first weights: [R, 2 * I]."""
        rows = x_RD.shape[0]
        out_R2I = self._empty(x_RD, rows, self._widths[0])
        self._gemm.run_experts(self.gate_up_plan(rows), x_RD, self._gate_up, ends_E, out_R2I)
        return out_R2I

    def down(self, active_RI: torch.Tensor, ends_E: torch.Tensor) -> torch.Tensor:
        """Multiply activations, sorted by expert, with the second weights: [R, D]."""
        rows = active_RI.shape[0]
        out_RD = self._empty(active_RI, rows, self._widths[1])
        self._gemm.run_experts(self.down_plan(rows), active_RI, self._down, ends_E, out_RD)
        return out_RD

    def _product(
        self, numerics: Numerics, experts: int, in_width: int, out_width: int
    ) -> Planned[Plan]:
        spec = GroupedSpec(
            experts=experts,
            in_width=in_width,
            out_width=out_width,
            activation_format=self._product_format,
            out_dtype=numerics.accumulate,
        )
        return Planned(lambda max_rows: self._gemm.plan_experts(spec, max_rows))

    def _empty(self, like: torch.Tensor, rows: int, width: int) -> torch.Tensor:
        return torch.empty((rows, width), dtype=self._accumulate, device=like.device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """How rows choose their experts.

    Attributes:
        gate: hidden to one logit an expert, in the accumulation dtype.
        bias_E: selection bias of text rows, fp32.
        image_bias_E: selection bias of rows inside an image span, fp32.
        experts_per_row: k.
        scaling: factor on the normalised weights.
    """

    gate: Linear
    bias_E: torch.Tensor
    image_bias_E: torch.Tensor
    experts_per_row: int
    scaling: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedExpert:
    """The expert that all rows pass.

    Attributes:
        gate_up: hidden to gate and up, [2 * I, D], in the accumulation dtype.
        down: expert width to hidden, in the accumulation dtype.
    """

    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """The mixture of experts of one layer.

    Attributes:
        device: works on the shared expert beside the routed ones.
        rows: row operators.
        router: chooses experts.
        experts: routed experts.
        shared: the shared expert.
        limit: largest gate, and largest absolute value of up.
    """

    device: Device
    rows: RowOperators
    router: Router
    experts: Experts
    shared: SharedExpert
    limit: float

    def __call__(
        self, x: Activations, image_T: torch.Tensor, name: str, probe: Probe | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what routed experts and the shared one give, [T, D] in the accumulation dtype.

        Their sum is the mixture's output.

        Args:
            x: normed input.
            image_T: rows inside an image span, which have a selection bias of their own.
            name: the layer's name, for the probe.
            probe: receives the choice of experts.
        """
        logits_TE = self.router.gate(x.plain_TD)
        shared_of = self.device.beside(lambda: self._shared(x.rounded_TD))
        expert_Tk, weight_Tk = self.rows.route(
            logits_TE,
            self.router.bias_E,
            self.router.image_bias_E,
            image_T,
            experts_per_row=self.router.experts_per_row,
            scaling=self.router.scaling,
        )
        if probe is not None:
            probe(f"{name}.experts", expert_Tk)
            probe(f"{name}.routing_weights", weight_Tk)
        routed_TD = self.experts(x.rounded_TD, expert_Tk, weight_Tk, self.rows, self.limit)
        return routed_TD, shared_of()

    def _shared(self, x_TD: torch.Tensor) -> torch.Tensor:
        return self.shared.down(self.rows.swiglu(self.shared.gate_up(x_TD), None, self.limit))
