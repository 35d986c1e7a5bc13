"""How does the drafter guess the next tokens?

Three layers of the backbone's kind attend to keys that every backbone step has left for them (from
the streams in front of the last layers), and to each other's: the anchor and the noise tokens
behind it form a block in which every row sees every row. The block gives one logit row a draft; a
small Markov head then adds what each draft says about the next one, so that only this last part
runs in order.

Shapes: Q sequences, n drafts a sequence, B = Q * n rows of all blocks, W window, D hidden width, V
vocabulary, L listed keys.

Source: DSpark of DeepSeek-V4.1-Flash.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from deepinfer_core.cache.storage import Caches
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.attention import CacheCodec, KeySource
from deepinfer_core.model.activations import Activations
from deepinfer_core.model.context import StepContext
from deepinfer_core.model.embedding import embed
from deepinfer_core.model.layer import Layer, first_pre_mix
from deepinfer_core.model.markov import MarkovHead
from deepinfer_core.model.operators import Linear
from deepinfer_core.model.projections import AttentionProjections
from deepinfer_core.model.rope import Rotation, rotation
from deepinfer_core.model.row_operators import RowOperators
from deepinfer_core.model.sparse_attention import ListedAttention
from deepinfer_core.model.windows import ring_slots
from deepinfer_core.numeric import QuantTensor

__all__ = ["Choose", "DraftLayer", "DraftRound", "Drafter", "greedy"]

Choose = Callable[[torch.Tensor, int], torch.Tensor]
"""From logits [Q, V] of draft number i to tokens [Q]."""


def greedy(logits_QV: torch.Tensor, number: int) -> torch.Tensor:
    """Take the largest logit, the lowest id among equals."""
    return logits_QV.argmax(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftLayer:
    """One layer of the drafter."""

    layer: Layer
    projections: AttentionProjections


@dataclass(frozen=True, slots=True)
class DraftRound:
    """What one round is asked for; the fields mean what they mean in ``TextModel.draft``."""

    anchor_token_Q: torch.Tensor
    accepted_position_Q: torch.Tensor
    state_slot_Q: torch.Tensor
    first_position_Q: torch.Tensor | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """The rows of one draft round: where their keys go and which keys they see."""

    rotation: Rotation
    write_slot_B: torch.Tensor
    slot_BL: torch.Tensor
    image_B: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafter:
    """The drafter of a checkpoint.

    Attributes:
        rows: row operators.
        codec: writes the rings.
        attention: attends over the rings.
        target_layers: layers in front of which features are taken, in the order of their use.
        frequency_P: plain rotary frequencies.
        window_tokens: context keys that a block sees.
        block_tokens: most drafts a round.
        noise_token: input of all rows but the first.
        embedding: the backbone's.
        features: concatenated features to hidden width.
        features_norm_D: weight of the norm behind it.
        layers: the layers.
        norm_D: weight of the last norm.
        head: the backbone's.
        markov: the sequential part.
    """

    rows: RowOperators
    codec: CacheCodec
    attention: ListedAttention
    target_layers: tuple[int, ...]
    frequency_P: torch.Tensor
    window_tokens: int
    block_tokens: int
    noise_token: int
    embedding: QuantTensor
    features: Linear
    features_norm_D: torch.Tensor
    layers: tuple[DraftLayer, ...]
    norm_D: torch.Tensor
    head: Linear
    markov: MarkovHead

    def store_context(self, features: Mapping[int, torch.Tensor], step: StepContext) -> None:
        """Leave a key of every row of a backbone step in every draft layer's ring.

        Args:
            features: by target layer, the mean of its input's streams, [T, D].
            step: the backbone's step.
        """
        joined_TF = torch.cat([features[layer] for layer in self.target_layers], dim=-1)
        features_TD = self.features(self.rows.for_product(joined_TF))
        context_TD = self.rows.norm_for_product(features_TD, self.features_norm_D)
        for number, layer in enumerate(self.layers):
            key_TW = layer.projections.window_key(context_TD, step.plain)
            step.report(f"mtp.{number}.key", key_TW)
            self.codec.store(key_TW, step.windows.write_slot_T, step.caches.drafter(number))

    def draft(
        self, wanted: DraftRound, caches: Caches, choose: Choose
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run one round, as ``TextModel.draft`` does.

        Returns:
            Ids [Q, n], and the logits of confidences [Q, n], neither scaled nor clipped.
        """
        count, ring_tokens = wanted.count, caches.layout.state.ring_tokens
        room = min(self.block_tokens, ring_tokens - self.window_tokens)
        if not 1 <= count <= room:
            raise NotSupported(
                f"asked for {count} drafts, found a drafter and rings for 1 to {room}",
                hint="ask for fewer drafts, or for more backtracking, up to the trained block",
            )
        block = self._block(wanted, ring_tokens)
        anchor_Q = wanted.anchor_token_Q
        token_Qn = anchor_Q.new_full((anchor_Q.shape[0], count), self.noise_token)
        token_Qn[:, 0] = anchor_Q
        hidden_BD = self._hidden(token_Qn.flatten(), block, caches)
        base_BV = self.head(self.rows.norm(hidden_BD, self.norm_D))
        return self.markov.extend(
            base_BV.view(-1, count, base_BV.shape[1]),
            hidden_BD.view(-1, count, hidden_BD.shape[1]),
            anchor_Q,
            choose,
        )

    def _block(self, wanted: DraftRound, ring_tokens: int) -> _Block:
        accepted_Q, window = wanted.accepted_position_Q, self.window_tokens
        back_L = torch.arange(1 - window, wanted.count + 1, device=accepted_Q.device)
        position_QL = accepted_Q[:, None] + back_L
        slot_QL = ring_slots(position_QL, wanted.state_slot_Q[:, None], ring_tokens)
        lowest_Q = torch.zeros_like(accepted_Q)
        if wanted.first_position_Q is not None:
            lowest_Q = wanted.first_position_Q.clamp_min(0)
        listed_QL = slot_QL.where(position_QL >= lowest_Q[:, None], -1)
        position_B = position_QL[:, window:].flatten()
        return _Block(
            rotation=rotation(position_B, self.frequency_P),
            # Flattened first, a block of one row would be a view with gaps, which kernels refuse.
            write_slot_B=slot_QL[:, window:].contiguous().flatten(),
            slot_BL=listed_QL.repeat_interleave(wanted.count, dim=0),
            image_B=torch.zeros_like(position_B, dtype=torch.bool),
        )

    def _hidden(self, token_B: torch.Tensor, block: _Block, caches: Caches) -> torch.Tensor:
        embedded_BD = embed(self.embedding, token_B, self.rows.compute)
        trunk_BSD = embedded_BD.unsqueeze(1).repeat(1, self.rows.streams, 1)
        pre_BS = first_pre_mix(trunk_BSD, self.rows.accumulate)
        for number, layer in enumerate(self.layers):

            def attend(
                x: Activations, layer: DraftLayer = layer, number: int = number
            ) -> torch.Tensor:
                return self._attend(x, layer.projections, block, caches, number)

            pre_BS = layer.layer(trunk_BSD, pre_BS, attend, block.image_B)
        return self.rows.collapse(trunk_BSD, pre_BS)

    def _attend(
        self,
        x: Activations,
        projections: AttentionProjections,
        block: _Block,
        caches: Caches,
        number: int,
    ) -> torch.Tensor:
        rings = caches.drafter(number)
        key_BW = projections.window_key(x.rounded_TD, block.rotation)
        self.codec.store(key_BW, block.write_slot_B, rings)
        q_BNW = projections.queries(projections.query_latent(x.rounded_TD), block.rotation)
        source = KeySource(pages=rings, slot_TL=block.slot_BL)
        attended_BNW = self.attention(q_BNW, (source,), projections.sink_N)
        return projections.output(attended_BNW, block.rotation)
