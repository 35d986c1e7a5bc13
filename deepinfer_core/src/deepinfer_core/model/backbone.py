"""How does the text model turn the rows of a step into logits?

Rows are embedded, copied into all residual streams, pass the layers, and are normed and multiplied
with the head; only rows whose logits are wanted pay for the last two. On the way every row leaves
its keys in the caches, including those that the drafter will want. A step may spare the decoder
half rows that only the encoder half and the entries need.

Shapes: T rows, S streams, D hidden width, R wanted rows, V vocabulary, Q sequences, n drafts.
"""

from dataclasses import dataclass

import torch

from deepinfer_core.cache.storage import Caches
from deepinfer_core.errors import NotSupported
from deepinfer_core.model.backbone_layer import BackboneLayer
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.model.context import Frequencies, Probe, StepContext, step_context
from deepinfer_core.model.drafter import Choose, Drafter, DraftRound, greedy
from deepinfer_core.model.embedding import embed
from deepinfer_core.model.engram_vocabulary import compressed_history
from deepinfer_core.model.layer import first_pre_mix
from deepinfer_core.model.operators import Linear
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.model.replay import check_replay, decoder_rows
from deepinfer_core.model.row_operators import RowOperators
from deepinfer_core.model.step import StepInputs
from deepinfer_core.numeric import QuantTensor

__all__ = ["EngramIds", "TextModel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngramIds:
    """How token ids become ids for the n-gram hash.

    Attributes:
        compressed_V: int64 compressed id of each token id.
        pad: compressed id that stands where there is no usable token.
    """

    compressed_V: torch.Tensor
    pad: int

    def history(self, step: StepInputs, distances: int) -> torch.Tensor:
        """Compressed ids at distance 0 up to ``distances`` before each row, int64 [T, N]."""
        return compressed_history(
            self.compressed_V,
            step.token_T,
            step.previous_T3[:, :distances],
            step.image_T,
            step.image_previous_T3[:, :distances],
            self.pad,
        )


@dataclass(slots=True, kw_only=True)
class _Flow:
    """What passes from layer to layer; all of it loses rows where the decoder half begins.

    Attributes:
        context: of the rows.
        trunk_TSD: residual streams.
        pre_TS: pre mixes for the next sublayer.
        features: what the drafter wants, by layer.
    """

    context: StepContext
    trunk_TSD: torch.Tensor
    pre_TS: torch.Tensor
    features: dict[int, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextModel:
    """The V4.1 text model with its drafter; built by ``builder.build_model``.

    Attributes:
        config: the checkpoint's config.
        parts: the components it runs on.
        rows: row operators.
        frequencies: rotary frequencies.
        embedding: [V, D], shared with the drafter.
        layers: the backbone.
        norm_D: weight of the last norm.
        head: hidden to logits in the accumulation dtype, shared with the drafter.
        engram_ids: None without Engram layers.
        drafter: None if the checkpoint has none.
    """

    config: ModelConfig
    parts: ModelParts
    rows: RowOperators
    frequencies: Frequencies
    embedding: QuantTensor
    layers: tuple[BackboneLayer, ...]
    norm_D: torch.Tensor
    head: Linear
    engram_ids: EngramIds | None
    drafter: Drafter | None

    @torch.inference_mode()
    def forward(
        self, step: StepInputs, caches: Caches, *, probe: Probe | None = None
    ) -> torch.Tensor:
        """Run one step: write all caches and return the wanted logits.

        A row's logits have the same bits however its sequence was cut into steps and whatever else
        is in the step, as far as the components promise it. Under bounded replay the bits depend
        besides on where it starts and on what is kept; outputs of rows in front of
        ``step.cached_ends`` or ``step.keep_from`` mean nothing.

        Args:
            step: the rows; sequences with at most the caches' ``max_backtracking`` rows may feed
                positions again that an earlier step fed (rejected drafts).
            caches: from ``caches.allocate_caches`` for this model.
            probe: receives intermediate values by name.

        Returns:
            Logits [R, V] of ``step.sample_row_R``, accumulation dtype.

        Raises:
            ConfigError: a truncation keeps too few tokens.
            NotSupported: the step's replay or truncation does not fit its positions or the model.
        """
        check_replay(step, self.config, caches.layout)
        flow = self._run_layers(self._context(step, caches, probe))
        wanted = flow.context.inputs.sample_row_R
        trunk_RSD, pre_RS = flow.trunk_TSD[wanted], flow.pre_TS[wanted]
        return self.head(self.rows.collapse_norm(trunk_RSD, pre_RS, self.norm_D))

    @torch.inference_mode()
    def draft(
        self,
        anchor_token_Q: torch.Tensor,
        accepted_position_Q: torch.Tensor,
        state_slot_Q: torch.Tensor,
        caches: Caches,
        *,
        count: int = 5,
        first_position_Q: torch.Tensor | None = None,
        choose: Choose = greedy,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draft the tokens that follow the anchors.

        Call the last accepted position a: ``forward`` has seen its row, and the anchor belongs to
        a + 1, draft i to a + 2 + i. The block's keys stand where the next step overwrites them.

        Args:
            anchor_token_Q: int64 anchors.
            accepted_position_Q: int64, a of each sequence.
            state_slot_Q: int64 state slots.
            caches: the caches of ``forward``.
            count: drafts a sequence, 1 up to the config's dspark_block_size.
            first_position_Q: first position whose keys exist; None: 0 everywhere.
            choose: picks tokens from logits [Q, V] of draft number i.

        Returns:
            Ids [Q, n], and confidences [Q, n]: how likely a draft is accepted if all before are.

        Raises:
            NotSupported: there is no drafter, or it does not draft so many tokens.
        """
        if self.drafter is None:
            raise NotSupported(
                "asked for drafts, found a checkpoint without a drafter",
                hint="turn speculation off",
            )
        wanted = DraftRound(
            anchor_token_Q, accepted_position_Q, state_slot_Q, first_position_Q, count
        )
        token_Qn, logit_Qn = self.drafter.draft(wanted, caches, choose)
        return token_Qn, self.drafter.markov.confidences(logit_Qn)

    def _context(
        self,
        step: StepInputs,
        caches: Caches,
        probe: Probe | None,
        *,
        makes_entries: bool = True,
    ) -> StepContext:
        return step_context(
            step,
            caches,
            self.frequencies,
            codec=self.parts.codec,
            window_tokens=self.config.text_config.sliding_window,
            ratios=frozenset(layer.plan.ratio for layer in self.layers if layer.plan.ratio),
            probe=probe,
            makes_entries=makes_entries,
        )

    def _run_layers(self, context: StepContext) -> _Flow:
        """Take the rows through all layers, and leave the drafter its keys."""
        memories = self._memories(context)
        trunk_TSD = self._trunk(context.inputs)
        pre_TS = first_pre_mix(trunk_TSD, self.rows.accumulate)
        flow = _Flow(context=context, trunk_TSD=trunk_TSD, pre_TS=pre_TS, features={})
        for layer in self.layers:
            number = layer.plan.index
            if context.inputs.truncation is not None and number == self.config.boundary_layer:
                self._enter_decoder(flow, layer)
            if layer.engram is not None:
                layer.engram.inject(flow.trunk_TSD, memories[number], context.inputs.image_T)
            if self.drafter is not None and number in self.drafter.target_layers:
                flow.features[number] = self._stream_mean(flow.trunk_TSD)
            flow.pre_TS = layer(flow.trunk_TSD, flow.pre_TS, flow.context)
        if self.drafter is not None:
            self.drafter.store_context(flow.features, flow.context)
        return flow

    def _enter_decoder(self, flow: _Flow, layer: BackboneLayer) -> None:
        """Let a truncated decoder half begin: rows may go, but first they make their entries."""
        whole = flow.context
        rows = decoder_rows(whole.inputs)
        if rows.inputs.valid_starts == whole.inputs.valid_starts:
            return  # all rows of all sequences are kept
        flow.context = self._context(
            rows.inputs, whole.caches, whole.probe, makes_entries=rows.row_S is None
        )
        if rows.row_S is not None:
            layer.make_entries(flow.trunk_TSD, flow.pre_TS, whole)
            flow.trunk_TSD, flow.pre_TS = flow.trunk_TSD[rows.row_S], flow.pre_TS[rows.row_S]
            flow.features = {n: mean_TD[rows.row_S] for n, mean_TD in flow.features.items()}

    def _memories(self, context: StepContext) -> dict[int, torch.Tensor]:
        if self.engram_ids is None:
            return {}
        distances = self.config.text_config.engram_max_ngram_size - 1
        compressed_TN = self.engram_ids.history(context.inputs, distances)
        memories = {}
        for layer in self.layers:
            if layer.engram is not None:
                number = layer.plan.index
                row_TC, memories[number] = layer.engram.look_up(compressed_TN)
                context.report(f"layers.{number}.engram.rows", row_TC)
        return memories

    def _trunk(self, step: StepInputs) -> torch.Tensor:
        embedded_TD = embed(
            self.embedding,
            step.token_T,
            self.rows.compute,
            image_T=step.image_T,
            embedding_TD=step.embedding_TD,
        )
        return embedded_TD.unsqueeze(1).repeat(1, self.config.text_config.hc_mult, 1)

    def _stream_mean(self, trunk_TSD: torch.Tensor) -> torch.Tensor:
        rows, streams = trunk_TSD.shape[:2]
        equal_TS = torch.full(
            (rows, streams), 1 / streams, dtype=self.rows.accumulate, device=trunk_TSD.device
        )
        return self.rows.collapse(trunk_TSD, equal_TS)
