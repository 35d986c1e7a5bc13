"""Which trials show that products, and the exchange with experts, treat every row alike?

Products run on the loaded weights; one of each shape and format stands for all of its kind.

Shapes: N rows of a batch, k experts a row, D hidden width, E experts.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from deepinfer_core.engine.proof.samples import Samples
from deepinfer_core.engine.proof.trial import POOL_ROWS, Trial
from deepinfer_core.interfaces.all_to_all import Dispatched, ExchangeSpec
from deepinfer_core.interfaces.gemm import DenseSpec
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.mixture import Experts, Mixture
from deepinfer_core.model.operators import Linear, torch_dtype
from deepinfer_core.model.projections import AttentionProjections

__all__ = ["dense_trials", "exchange_trials", "grouped_trials"]

_Named = tuple[str, Linear, torch.dtype]


def dense_trials(samples: Samples) -> Iterator[Trial]:
    """One trial for each shape and format among the model's products."""
    met: set[tuple[DenseSpec, str, torch.dtype]] = set()
    for name, linear, dtype in _linears(samples.model):
        spec = linear.spec
        if (spec, linear.weight_format, dtype) in met:
            continue
        met.add((spec, linear.weight_format, dtype))
        x_PK = samples.rows(spec.groups * spec.in_width, dtype=dtype)
        widths = f"{spec.groups} x " * (spec.groups > 1) + f"{spec.in_width} to {spec.out_width}"
        yield Trial(
            kind="gemm",
            slot="dense",
            operator=f"the product {name} ({widths}, {linear.weight_format})",
            run=lambda order, linear=linear, x_PK=x_PK: [linear(x_PK[order])],  # type: ignore[misc]
            plan=linear.plan,
        )


def grouped_trials(samples: Samples) -> Iterator[Trial]:
    """Both products of the experts; three rows of four meet in one expert."""
    rows = samples.model.rows
    for name, experts in _experts(samples.model):
        spec = experts.exchange_spec
        last = spec.experts - 1
        expert_P = torch.tensor([(0, last, 0, 0)[row % 4] for row in range(POOL_ROWS)])
        for product, width, dtype, run, plan in (
            ("gate and up", spec.width, rows.compute, experts.gate_up, experts.gate_up_plan),
            ("down", experts.width, rows.accumulate, experts.down, experts.down_plan),
        ):
            x_PK = samples.rows(width, dtype=dtype)

            def multiply(
                order: torch.Tensor, x_PK: torch.Tensor = x_PK, run=run, experts=spec.experts
            ) -> list[torch.Tensor]:
                sorted_N = expert_P[order].argsort(stable=True)
                count_E = torch.bincount(expert_P[order], minlength=experts)
                x_RK = x_PK[order[sorted_N]]
                out_RN = run(x_RK, count_E.cumsum(0).to(x_RK.device))
                return [out_RN[sorted_N.argsort().to(out_RN.device)]]

            yield Trial(
                kind="gemm",
                slot="grouped",
                operator=f"the product {product} of the experts of {name}",
                run=multiply,
                plan=plan,
            )


def exchange_trials(samples: Samples) -> Iterator[Trial]:
    """Rows to their experts and back; what experts answer is made up."""
    exchange, model = samples.model.parts.all_to_all, samples.model
    for name, experts in _experts(model):
        spec = experts.exchange_spec
        x_PD = samples.rows(spec.width, dtype=model.rows.compute)
        expert_Pk, weight_Pk = _choices(samples, spec, model.rows.accumulate)

        def there_and_back(
            order: torch.Tensor,
            spec: ExchangeSpec = spec,
            x_PD: torch.Tensor = x_PD,
            expert_Pk: torch.Tensor = expert_Pk,
            weight_Pk: torch.Tensor = weight_Pk,
        ) -> list[torch.Tensor]:
            plan = exchange.plan(spec, len(order))
            x_ND = x_PD[order]
            sent = exchange.dispatch(plan, x_ND, expert_Pk[order], weight_Pk[order])
            out_ND = torch.empty_like(x_ND, dtype=model.rows.accumulate)
            exchange.combine(plan, _answers(sent, out_ND.dtype), sent, out_ND)
            return [out_ND]

        yield Trial(
            kind="all_to_all",
            slot="all_to_all",
            operator=f"dispatch and combine for the experts of {name}",
            run=there_and_back,
            plan=lambda rows, spec=spec: exchange.plan(spec, rows),  # type: ignore[misc]
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
            yield f"{name}.indexer.query", layer.selector.query, compute
            yield f"{name}.indexer.head_weight", layer.selector.head_weight, compute
        if layer.engram is not None:
            yield f"{name}.engram", layer.engram.project, compute
    if model.drafter is not None:
        yield "drafter.features", model.drafter.features, compute
        for draft in model.drafter.layers:
            yield from _common(draft.layer.name, draft.projections, draft.layer.mixture)
        yield "markov.head", model.drafter.markov.head, compute
        yield "markov.confidence", model.drafter.markov.confidence, compute


def _common(name: str, attention: AttentionProjections, mixture: Mixture) -> Iterator[_Named]:
    """Products that layers of the backbone and of the drafter share."""
    rows = mixture.rows
    for part in ("query_down", "query_up", "key", "group_out", "out"):
        yield f"{name}.{part}", getattr(attention, part), rows.compute
    yield f"{name}.gate", mixture.router.gate, rows.compute
    yield f"{name}.shared.gate_up", mixture.shared.gate_up, rows.compute
    yield f"{name}.shared.down", mixture.shared.down, rows.accumulate
