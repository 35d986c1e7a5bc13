"""Which part does each layer play: what does it own, and from whom does it borrow?

Compressed keys, index keys and selected indices are shared: a layer without its own takes those of
the nearest earlier layer that has them. Everything is derived from the lists of source layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepinfer_core.model.config import TextConfig

__all__ = ["LayerPlan", "plan_layers", "source_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPlan:
    """One layer of the backbone or of the drafter.

    Attributes:
        index: position in the sequence of all layers; the drafter follows the backbone.
        prefix: start of its tensor names, ``layers.3.`` or ``mtp.0.``.
        ratio: tokens in one compressed entry; 0: only the window is seen.
        is_drafter: belongs to the drafter.
        kv_source: layer whose compressed entries it attends to; its own index if it has a
            compressor; None at ratio 0.
        has_compressor: makes compressed entries.
        has_compressor_gate: blends the tokens of a group by a learned gate (ratio 2).
        has_indexer: scores and selects entries.
        has_index_keys: makes index keys, from its compressor's latents.
        has_engram: adds the Engram memory to its input.
        builds_pool: its scores make the candidate pool.
        uses_pool: it selects only inside the candidate pool.
        routed_experts: experts to choose from.
        experts_per_token: experts chosen.
    """

    index: int
    prefix: str
    ratio: int
    is_drafter: bool
    kv_source: int | None
    has_compressor: bool
    has_compressor_gate: bool
    has_indexer: bool
    has_index_keys: bool
    has_engram: bool
    builds_pool: bool
    uses_pool: bool
    routed_experts: int
    experts_per_token: int


def source_of(layer: int, sources: Sequence[int]) -> int | None:
    """Return the largest id of ``sources`` that is at most ``layer``, or None."""
    return max((source for source in sources if source <= layer), default=None)


def plan_layers(text: TextConfig) -> tuple[LayerPlan, ...]:
    """Work out the part of every layer of a validated configuration."""
    total = text.num_hidden_layers + text.num_nextn_predict_layers
    return tuple(_plan(text, index) for index in range(total))


def _plan(text: TextConfig, index: int) -> LayerPlan:
    is_drafter = index >= text.num_hidden_layers
    ratio = text.compress_ratios[index]
    has_indexer = index in text.index_source_layer_ids
    mtp = index - text.num_hidden_layers
    return LayerPlan(
        index=index,
        prefix=f"mtp.{mtp}." if is_drafter else f"layers.{index}.",
        ratio=ratio,
        is_drafter=is_drafter,
        kv_source=source_of(index, text.kv_source_layer_ids) if ratio else None,
        has_compressor=index in text.kv_source_layer_ids,
        has_compressor_gate=index in text.kv_source_layer_ids and ratio > 1,
        has_indexer=has_indexer,
        has_index_keys=index in text.index_key_layers,
        has_engram=index in text.engram_layer_ids,
        builds_pool=index == text.candidate_source_layer_id,
        uses_pool=has_indexer and index > text.candidate_source_layer_id,
        routed_experts=text.dspark_n_routed_experts if is_drafter else text.n_routed_experts,
        experts_per_token=(
            text.dspark_num_experts_per_tok if is_drafter else text.num_experts_per_tok
        ),
    )
