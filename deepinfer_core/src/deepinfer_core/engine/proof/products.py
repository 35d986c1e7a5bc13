"""Which trials show that products, and the exchange with experts, treat every row alike?

Products run on the loaded weights; one of each shape and format stands for all of its kind.

Shapes: N rows of a batch, k experts a row, D hidden width, E experts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from deepinfer_core.engine.proof.samples import Samples
from deepinfer_core.engine.proof.trial import POOL_ROWS, Trial
from deepinfer_core.interfaces.all_to_all import Dispatched, ExchangeSpec
from deepinfer_core.interfaces.gemm import DenseSpec
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.mixture import Experts, Mixture
from deepinfer_core.model.operators import Linear
from deepinfer_core.model.projections import AttentionProjections

__all__ = ["dense_trials", "exchange_trials", "grouped_trials"]

_Named = tuple[str, Linear, torch.dtype]


def dense_trials(samples: Samples) -> Iterator[Trial]:
    """One trial for each shape and format among the model's products."""
    met: set[tuple[DenseSpec, str, torch.dtype]] = set()
    for name, linear, dtype in _linears(samples.model):
        form = (linear.spec, linear.weight_format, dtype)
        if form not in met:
            met.add(form)
            yield _dense(samples, name, linear, dtype)


def _dense(samples: Samples, name: str, linear: Linear, dtype: torch.dtype) -> Trial:
    spec = linear.spec
    x_PK = samples.rows(spec.groups * spec.in_width, dtype=dtype)
    widths = f"{spec.groups} x " * (spec.groups > 1) + f"{spec.in_width} to {spec.out_width}"
    return Trial(
        kind="gemm",
        slot="dense",
        operator=f"the product {name} ({widths}, {linear.weight_format})",
        run=lambda order: [linear(x_PK[order])],
        plan=linear.plan,
    )


def grouped_trials(samples: Samples) -> Iterator[Trial]:
    """Both products of the experts; three rows of four meet in one expert."""
    rows = samples.model.rows
    compute, wide = (rows.for_products(dtype) for dtype in (rows.compute, rows.accumulate))
    for name, experts in _experts(samples.model):
        count, width = experts.exchange_spec.experts, experts.exchange_spec.width
        gate_up = _by_expert(samples.rows(width, dtype=compute), count, experts.gate_up)
        down = _by_expert(samples.rows(experts.width, dtype=wide), count, experts.down)
        for product, run, plan in (
            ("gate and up", gate_up, experts.gate_up_plan),
            ("down", down, experts.down_plan),
        ):
            yield Trial(
                kind="gemm",
                slot="grouped",
                operator=f"the product {product} of the experts of {name}",
                run=run,
                plan=plan,
            )


def _by_expert(
    x_PK: torch.Tensor,
    experts: int,
    product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Callable[[torch.Tensor], list[torch.Tensor]]:
    """Sort rows by their expert, multiply, and bring the results back into order."""
    expert_P = torch.tensor([(0, experts - 1, 0, 0)[row % 4] for row in range(POOL_ROWS)])

    def run(order: torch.Tensor) -> list[torch.Tensor]:
        expert_N = expert_P[order]
        sorted_N = expert_N.argsort(stable=True)
        end_E = torch.bincount(expert_N, minlength=experts).cumsum(0)
        out_RK = product(x_PK[order[sorted_N]], end_E.to(x_PK.device))
        return [out_RK[sorted_N.argsort()]]

    return run


def exchange_trials(samples: Samples) -> Iterator[Trial]:
    """Rows to their experts and back; what experts answer is made up."""
    for name, experts in _experts(samples.model):
        yield _exchange(samples, name, experts.exchange_spec)


def _exchange(samples: Samples, name: str, spec: ExchangeSpec) -> Trial:
    exchange, rows = samples.model.parts.all_to_all, samples.model.rows
    x_PD = samples.rows(spec.width, dtype=rows.for_products(rows.compute))
    expert_Pk, weight_Pk = _choices(samples, spec, rows.accumulate)

    def run(order: torch.Tensor) -> list[torch.Tensor]:
        plan, x_ND = exchange.plan(spec, len(order)), x_PD[order]
        sent = exchange.dispatch(plan, x_ND, expert_Pk[order], weight_Pk[order])
        out_ND = torch.empty_like(x_ND, dtype=rows.accumulate)
        exchange.combine(plan, _answers(sent, out_ND.dtype), sent, out_ND)
        return [out_ND]

    return Trial(
        kind="all_to_all",
        slot="all_to_all",
        operator=f"dispatch and combine for the experts of {name}",
        run=run,
        plan=lambda rows: exchange.plan(spec, rows),
    )


def _choices(
    samples: Samples, spec: ExchangeSpec, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Distinct experts of each row and their weights; every fourth row lacks one."""
    order_PE = torch.rand(POOL_ROWS, spec.experts, generator=samples.generator).argsort(1)
    expert_Pk = order_PE[:, : spec.experts_per_row].contiguous()
    expert_Pk[3::4, -1] = -1
    weight_Pk = torch.rand(expert_Pk.shape, generator=samples.generator)
    weight_Pk.masked_fill_(expert_Pk < 0, 0)
    return expert_Pk.to(samples.device), weight_Pk.to(samples.device, dtype)


def _answers(sent: Dispatched, dtype: torch.dtype) -> torch.Tensor:
    """A third of each row times the number of its expert; NaN in rows of nobody."""
    y_RD = torch.full_like(sent.x_RD, torch.nan, dtype=dtype)
    start = 0
    for expert, end in enumerate(sent.ends_E.tolist()):
        y_RD[start:end] = sent.x_RD[start:end].to(dtype) * (expert + 1) / 3
        start = end
    return y_RD


def _experts(model: TextModel) -> Iterator[tuple[str, Experts]]:
    """The experts of one layer of the backbone and of one of the drafter."""
    yield model.layers[0].layer.name, model.layers[0].layer.mixture.experts
    if model.drafter is not None:
        first = model.drafter.layers[0].layer
        yield first.name, first.mixture.experts


def _linears(model: TextModel) -> Iterator[_Named]:
    """Every product of the model, with the dtype of its input."""
    compute = model.rows.compute
    rounded = model.rows.for_products(compute)
    yield "head", model.head, compute
    for layer in model.layers:
        name = layer.layer.name
        yield from _common(name, layer.projections, layer.layer.mixture)
        if layer.compressor is not None:
            yield f"{name}.compressor.value", layer.compressor.value, compute
            if layer.compressor.gate is not None:
                yield f"{name}.compressor.gate", layer.compressor.gate, compute
            if layer.compressor.index is not None:
                yield f"{name}.compressor.index", layer.compressor.index.project, compute
        if layer.selector is not None:
            yield f"{name}.indexer.query", layer.selector.query, rounded
            yield f"{name}.indexer.head_weight", layer.selector.head_weight, compute
        if layer.engram is not None:
            yield f"{name}.engram", layer.engram.project, compute
    if model.drafter is not None:
        yield "drafter.features", model.drafter.features, rounded
        for draft in model.drafter.layers:
            yield from _common(draft.layer.name, draft.projections, draft.layer.mixture)
        yield "markov.head", model.drafter.markov.head, compute
        yield "markov.confidence", model.drafter.markov.confidence, compute


def _common(name: str, attention: AttentionProjections, mixture: Mixture) -> Iterator[_Named]:
    """Products that layers of the backbone and of the drafter share."""
    rows = mixture.rows
    for part in ("query_down", "query_up", "key", "group_out", "out"):
        yield f"{name}.{part}", getattr(attention, part), rows.for_products(rows.compute)
    yield f"{name}.gate", mixture.router.gate, rows.compute
    yield f"{name}.shared.gate_up", mixture.shared.gate_up, rows.for_products(rows.compute)
    yield f"{name}.shared.down", mixture.shared.down, rows.for_products(rows.accumulate)
