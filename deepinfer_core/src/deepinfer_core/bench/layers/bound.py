"""In what time could this device do a step, or all of a prompt, at best?

The *layer bound* of a step is the sum over its operators of the longer of two times: what the
operator moves, at the copy rate of the same run, and what it computes, at the matrix rate of the
same run. Engram rows come over the bus; that can go on beside everything else, so the bound is
never shorter than that, but not longer for it either. Without torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from deepinfer_core.bench.layers.depth import kind_of, kinds_of
from deepinfer_core.bench.layers.operators import layer_operators, outer_operators
from deepinfer_core.bench.layers.work import Load, Operator, Storage
from deepinfer_core.model.config import ModelConfig

__all__ = ["Rates", "StepBound", "step_bound"]

_TABLE_GROUP = 32
"""Channels of an Engram row that share a scale byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What the device reached in this run.

    Attributes:
        copy_bytes_per_s: read plus written.
        flops_per_s: product of large bf16 matrices.
        host_bytes_per_s: read from host memory by the device.
    """

    copy_bytes_per_s: float
    flops_per_s: float
    host_bytes_per_s: float

    def operator_s(self, operator: Operator) -> float:
        """The shortest time of one operator."""
        return max(operator.moved_bytes / self.copy_bytes_per_s, operator.flops / self.flops_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBound:
    """The shortest time of a step, in seconds.

    Attributes:
        by_operator: sum over all layers, by the operator's name.
        host_s: for what comes over the bus.
    """

    by_operator: Mapping[str, float]
    host_s: float

    @property
    def seconds(self) -> float:
        """The layer bound."""
        return max(sum(self.by_operator.values()), self.host_s)


def step_bound(config: ModelConfig, load: Load, storage: Storage, rates: Rates) -> StepBound:
    """The bound of a step of a model without drafter.

    Args:
        config: whose backbone runs; layers of one kind take the same time.
        load: the step.
        storage: bytes that the components keep.
        rates: of the device.
    """
    text = config.text_config
    plans = {kind_of(plan): plan for plan in config.backbone_layers}
    times: dict[str, float] = {}
    for kind, count in kinds_of(config).items():
        operators = layer_operators(text, plans[kind], load, storage)
        _add(times, operators, rates, count)
    _add(times, outer_operators(text, load, storage), rates, 1)
    row_bytes = text.engram_head_dim + text.engram_head_dim // _TABLE_GROUP
    looked_up = len(text.engram_layer_ids) * text.engram_columns * row_bytes * load.all_rows
    return StepBound(by_operator=times, host_s=looked_up / rates.host_bytes_per_s)


def _add(times: dict[str, float], operators: Iterable[Operator], rates: Rates, count: int) -> None:
    for operator in operators:
        added = count * rates.operator_s(operator)
        times[operator.name] = times.get(operator.name, 0.0) + added
