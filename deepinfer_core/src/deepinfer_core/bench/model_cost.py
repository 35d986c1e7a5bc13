"""What does a token cost any engine that runs this model?

Counted from the checkpoint's config: each matrix of the network is used once for each row, of the
routed experts as many as a row is sent to. Left out is what depends on the implementation or on the
position: attention scores, norms, mixes, the drafter, the vision tower, and rows of tables that
are only looked up. So these are lower bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from deepinfer_core.model.config import ModelConfig
from deepinfer_core.weights.manifest import WeightSpec, manifest_of

__all__ = ["ModelCost", "model_cost"]

_HEAD = "head.weight"
_LOOKED_UP = ("embed.weight", ".engram.embed.weight")
_IMAGE_FRAME = "image_"
_ELSEWHERE = ("drafter", "vision")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCost:
    """Lower bounds of the work of a step.

    Attributes:
        parameters: values of the whole checkpoint.
        step_bytes: weights that a step of one row or more reads, as the checkpoint stores them.
        row_flops: operations of a row, the output head left out; a product and a sum are two.
        head_flops: operations of the output head, for a row that a token is drawn from.
    """

    parameters: int
    step_bytes: int
    row_flops: int
    head_flops: int


def model_cost(config: ModelConfig) -> ModelCost:
    """Count the cost of a checkpoint's rows and steps."""
    text = config.text_config
    drafter = tuple(layer.prefix for layer in config.drafter_layers)
    share = text.num_experts_per_tok / text.n_routed_experts
    weights = manifest_of(config).weights.values()
    step_bytes = row_flops = head_flops = 0.0
    for spec in weights:
        if not _is_used(spec, drafter):
            continue
        used = share if spec.group == "experts" else 1.0
        step_bytes += used * sum(tensor.nbytes for tensor in spec.stored())
        flops = 2 * used * prod(spec.shape) if len(spec.shape) > 1 else 0.0
        if spec.name == _HEAD:
            head_flops += flops
        else:
            row_flops += flops
    return ModelCost(
        parameters=sum(prod(spec.shape) for spec in weights),
        step_bytes=round(step_bytes),
        row_flops=round(row_flops),
        head_flops=round(head_flops),
    )


def _is_used(spec: WeightSpec, drafter: tuple[str, ...]) -> bool:
    """Whether the weight takes part, as a whole, in a step without drafts and images."""
    is_table = spec.name == _LOOKED_UP[0] or spec.name.endswith(_LOOKED_UP[1])
    return not (
        is_table or spec.name.startswith((*drafter, _IMAGE_FRAME)) or spec.group in _ELSEWHERE
    )
