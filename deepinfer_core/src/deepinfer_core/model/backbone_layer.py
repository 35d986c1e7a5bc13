"""How does a layer of the backbone attend?

Every layer has a window of its own. Layers with a ratio also attend to compressed entries, which
only some layers make, and which entries is decided by only some layers; the others borrow. Layers
of the decoder half make no entries except for the first one, so that the entries of a prompt are
complete once the encoder half has run.

Shapes: T rows, S streams, D hidden width.
"""

from dataclasses import dataclass

import torch

from deepinfer_core.interfaces.attention import KeySource
from deepinfer_core.model.activations import Activations
from deepinfer_core.model.compressor import Compressor
from deepinfer_core.model.context import StepContext
from deepinfer_core.model.engram import Engram
from deepinfer_core.model.layer import Layer
from deepinfer_core.model.layer_plan import LayerPlan
from deepinfer_core.model.projections import AttentionProjections
from deepinfer_core.model.rope import Rotation
from deepinfer_core.model.selector import Selector
from deepinfer_core.model.sparse_attention import StepAttention

__all__ = ["BackboneLayer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackboneLayer:
    """One layer of the backbone.

    Attributes:
        plan: its part among the layers.
        layer: sublayers and experts.
        projections: queries, window key and output.
        attention: attends.
        compressor: makes entries; None if it borrows or needs none.
        selector: selects entries; None if it borrows or needs none.
        engram: its memory, if it has one.
    """

    plan: LayerPlan
    layer: Layer
    projections: AttentionProjections
    attention: StepAttention
    compressor: Compressor | None
    selector: Selector | None
    engram: Engram | None

    def __call__(
        self, trunk_TSD: torch.Tensor, pre_TS: torch.Tensor, step: StepContext
    ) -> torch.Tensor:
        """Run the layer on the trunk in place; returns the pre mixes for the next sublayer."""

        def attend(x: Activations) -> torch.Tensor:
            return self._attend(x, step)

        return self.layer(trunk_TSD, pre_TS, attend, step.inputs.image_T, step.probe)

    def make_entries(
        self, trunk_TSD: torch.Tensor, pre_TS: torch.Tensor, step: StepContext
    ) -> None:
        """Write the entries and index keys of all rows without running the layer."""
        if self.compressor is not None:
            self.compressor(self.layer.attention_input(trunk_TSD, pre_TS), step)

    def _attend(self, x: Activations, step: StepContext) -> torch.Tensor:
        by = step.compressed if self.plan.ratio else step.plain
        beside = self.layer.device.beside
        key_of = beside(lambda: self._keys(x, by, step))
        latent_TK = self.projections.query_latent(x.rounded_TD)
        key_TW = key_of()
        selected = None
        if (selector := self.selector) is not None:
            selected = beside(lambda: selector(x.plain_TD, latent_TK, step))
        query_TNW = self.projections.queries(latent_TK, by)
        if selected is not None:
            selected()
        attended_TNW = self.attention(
            query_TNW,
            key_TW,
            self.projections.sink_N,
            step.caches.window(self.plan.index),
            step.windows,
            self._entries(step),
        )
        return self.projections.output(attended_TNW, by)

    def _keys(self, x: Activations, by: Rotation, step: StepContext) -> torch.Tensor:
        """Return the rows' own window keys, and write the entries that they complete."""
        key_TW = self.projections.window_key(x.rounded_TD, by)
        step.report(f"layers.{self.plan.index}.attn.key", key_TW)
        if self.compressor is not None and step.makes_entries:
            self.compressor(x.plain_TD, step)
        return key_TW

    def _entries(self, step: StepContext) -> KeySource | None:
        if self.plan.kv_source is None:
            return None
        assert step.selection.slot_TL is not None
        return KeySource(
            pages=step.caches.entries(self.plan.kv_source), slot_TL=step.selection.slot_TL
        )
