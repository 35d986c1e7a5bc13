"""How are drafts verified and drawn on the device?

Behind the sampling of a step a round of drafts is run, for every sequence that drew a token; the
next step feeds them from here. Everything is kept by place: drafts, the laws that they were drawn
from, and, for a drafter that reads them, all tokens. Place 0 is for padding.

Drafts are drawn with the settings of the request. Under the match rule they share the random number
of the token that they stand for, which makes the two alike; under the ratio rule that would be
wrong, and they have numbers of their own, other ones in every round.

Shapes: R sampled rows, Q sequences of a round, n drafts of each, V vocabulary, S places, L longest
text, P = S * n rows of laws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from deepinfer_core.engine.drafts.fed_tokens import FedTokens
from deepinfer_core.engine.drafts.open_rows import Left, OpenRows, kept_drafts
from deepinfer_core.engine.drafts.packed import PackedDrafts
from deepinfer_core.engine.drafts.proposed import Proposed
from deepinfer_core.engine.drafts.shared_rows import SharedRows
from deepinfer_core.engine.drawn import Drawn
from deepinfer_core.engine.rows import DraftRequest, RowRequest
from deepinfer_core.engine.sampler_inputs import SamplerInputs
from deepinfer_core.errors import PluginFailed
from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.device import Device
from deepinfer_core.interfaces.drafter import Choose, Drafter, DraftHost, DraftRound
from deepinfer_core.interfaces.sampler import Sampler, SamplerRows, SamplerSpec
from deepinfer_core.model.step import StepInputs
from deepinfer_core.schedule.plan import StepPlan

__all__ = ["DraftStage", "PackedFeed"]

_DRAFT_SEED = 1_000_000_007
_ROUND_SEED = -0x2EBACD217A1D1A6B
"""Added to the seed of a request, and for each position of an anchor, to draw drafts with; an odd
number of 64 bits, signed."""


class PackedFeed:
    """What a step feeds that the stage has to do with, on the host.

    Args:
        plan: the step.
        device: where it runs.
        reads_tokens: tokens are kept.
        may_share: rows may be shared out anew.
    """

    def __init__(
        self, plan: StepPlan, device: Device, *, reads_tokens: bool, may_share: bool
    ) -> None:
        self.open_rows = OpenRows(plan, device)
        self.shared: SharedRows | None = None
        if may_share and plan.shares is not None:
            self.shared = SharedRows(plan, plan.shares, device)
        self.tokens = FedTokens(plan, device) if reads_tokens else None


class DraftStage:
    """The drafts of one engine.

    Args:
        drafter: attached to ``host``.
        host: sizes and rule.
        sampler: verifies and draws.
        device: where both run.

    Attributes:
        keeps_laws: drafts are accepted by the laws that they were drawn from.

    Raises:
        NotSupported: the sampler lacks the rule.
        DeviceError: there is not enough memory.
    """

    def __init__(self, drafter: Drafter, host: DraftHost, sampler: Sampler, device: Device) -> None:
        self.drafter = drafter
        self.host = host
        self._sampler = sampler
        self._device = device
        self._is_ratio = host.rule == "ratio"
        self._draws = drafter.capabilities.law == "full"
        self.keeps_laws = self._is_ratio and self._draws
        self._settings = SamplerInputs(host.vocabulary, device)
        self._plans: dict[tuple[int, int], Plan] = {}
        places = host.max_sequences + 1
        self._draft_Sn = device.zeros((places, host.drafts), torch.int64).fill_(-1)
        self._confidence_Sn = device.zeros((places, host.drafts), torch.float32)
        self._law_PV: torch.Tensor | None = None
        if self.keeps_laws:
            self._law_PV = device.zeros((places * host.drafts, host.vocabulary), torch.int32)
        self._token_SL: torch.Tensor | None = None
        if drafter.capabilities.reads_tokens:
            self._token_SL = device.zeros((places, host.max_tokens + 1), torch.int64)
        self._plan(0, 1)  # a sampler that lacks the rule says so now

    def pack_feed(self, plan: StepPlan, *, may_share: bool = False) -> PackedFeed | None:
        """Pack what a step feeds; None: the stage has nothing to do with it.

        Args:
            plan: the step.
            may_share: nothing on the host depends on who has which of its rows.
        """
        reads_tokens = self._token_SL is not None
        if not reads_tokens and not _has_drafts(plan):
            return None
        return PackedFeed(plan, self._device, reads_tokens=reads_tokens, may_share=may_share)

    def settle(self, packed: PackedFeed, inputs: StepInputs, left: Left | None) -> None:
        """Fill in what only the device knows; called by work on the stream, before the rows run.

        Args:
            packed: of the step.
            inputs: of the step; changed in place.
            left: by the step before.
        """
        shared_Q: torch.Tensor | None = None
        if packed.shared is not None and left is not None:
            shared_Q = packed.shared.settle(self._confidence_Sn)
        packed.open_rows.settle(inputs, left, self._draft_Sn, shared_Q)
        if packed.tokens is not None:
            assert self._token_SL is not None
            packed.tokens.keep(inputs, self._token_SL)

    def pack_drafts(
        self, rows: tuple[RowRequest, ...], wanted: tuple[DraftRequest, ...]
    ) -> PackedDrafts:
        """Pack the drafts that a step verifies, and the round behind it."""
        settings = self._settings if self._draws else None
        return PackedDrafts(rows, wanted, settings, self._device)

    def verify(
        self,
        packed: PackedDrafts,
        sampler: Sampler,
        plan: Plan,
        logits_RV: torch.Tensor,
        settings: SamplerRows,
        drawn: Drawn,
    ) -> None:
        """Draw at every row, and say which drafts are accepted; called by work on the stream.

        Args:
            packed: of the step.
            sampler: draws the rows.
            plan: its plan for so many.
            logits_RV: of the rows.
            settings: of the rows.
            drawn: overwritten.
        """
        verdicts = drawn.verdicts
        assert verdicts is not None
        drafted = packed.drafted(self._law_PV)
        if self._is_ratio and packed.verifies:
            ratio = self._plan(drawn.out.top_token_RA.shape[1], logits_RV.shape[0])
            sampler.verify(ratio, logits_RV, settings, drafted, drawn.out, verdicts)
            return
        sampler.run(plan, logits_RV, settings, drawn.out)
        # A row without a draft has -1 there, which nothing equals.
        torch.eq(drawn.out.token_R, drafted.draft_R, out=verdicts.accepted_R)
        verdicts.overlap_R.zero_()

    def propose(self, packed: PackedDrafts, drawn: Drawn) -> Proposed:
        """Run the round behind a step; called by work on the stream.

        Raises:
            PluginFailed: the drafter gave something else than a round.
        """
        wanted = packed.round
        accepted_R = None if drawn.verdicts is None else drawn.verdicts.accepted_R
        kept_Q = kept_drafts(accepted_R, wanted.first_Q, wanted.drafts_Q, wanted.most_drafts)
        anchor_Q = drawn.out.token_R[wanted.first_Q + kept_Q]
        accepted_Q = wanted.start_Q + kept_Q
        if self._token_SL is not None:
            self._token_SL[wanted.place_Q, accepted_Q + 1] = anchor_Q
        asked = DraftRound(
            anchor_token_Q=anchor_Q,
            accepted_position_Q=accepted_Q,
            first_position_Q=wanted.valid_start_Q,
            state_slot_Q=wanted.state_slot_Q,
            place_Q=wanted.place_Q,
            token_SL=self._token_SL,
        )
        given = self.drafter.propose(asked, self._chooser(packed, asked))
        shape = (anchor_Q.shape[0], self.host.drafts)
        if tuple(given.token_Qn.shape) != shape:
            raise PluginFailed(
                f"{type(self.drafter).__name__} was asked for {shape} drafts and gave "
                f"{tuple(given.token_Qn.shape)}"
            )
        self._draft_Sn[wanted.place_Q] = given.token_Qn
        if given.confidence_Qn is not None:
            self._confidence_Sn[wanted.place_Q] = given.confidence_Qn
        return Proposed(given, packed.count, self.host.vocabulary, self._device)

    def _chooser(self, packed: PackedDrafts, asked: DraftRound) -> Choose:
        if packed.settings is None:
            return _no_draws
        _, settings = packed.settings.arrive()
        first_Q = asked.accepted_position_Q + 2
        draw = self._ratio_draw(settings, asked) if self.keeps_laws else self._match_draw(settings)
        return lambda logits_QV, number: draw(logits_QV, first_Q + number, number)

    def _match_draw(self, settings: SamplerRows) -> _Draw:
        def draw(logits_QV: torch.Tensor, position_Q: torch.Tensor, number: int) -> torch.Tensor:
            count, vocabulary = logits_QV.shape
            drawn = Drawn(count, 0, self._device)
            plan = self._plan(0, count)
            self._sampler.run(plan, logits_QV, replace(settings, position_R=position_Q), drawn.out)
            return drawn.out.token_R.clamp(0, vocabulary - 1)

        return draw

    def _ratio_draw(self, settings: SamplerRows, asked: DraftRound) -> _Draw:
        law_PV, place_Q = self._law_PV, asked.place_Q
        assert law_PV is not None
        seed_Q = settings.seed_R + _DRAFT_SEED + _ROUND_SEED * asked.accepted_position_Q

        def draw(logits_QV: torch.Tensor, position_Q: torch.Tensor, number: int) -> torch.Tensor:
            token_Q = torch.empty_like(position_Q)
            row_Q = torch.where(place_Q > 0, place_Q * self.host.drafts + number, 0)
            rows = replace(settings, seed_R=seed_Q, position_R=position_Q)
            plan = self._plan(0, position_Q.shape[0])
            self._sampler.draw_drafts(plan, logits_QV, rows, row_Q, law_PV, token_Q)
            return token_Q

        return draw

    def _plan(self, alternatives: int, rows: int) -> Plan:
        """A plan of the sampler for what the rule needs, for so many rows rounded up."""
        key = (alternatives, 1 << (rows - 1).bit_length())
        if key not in self._plans:
            spec = SamplerSpec(vocabulary=self.host.vocabulary, alternatives=alternatives)
            plan = self._sampler.plan_ratio if self._is_ratio else self._sampler.plan
            self._plans[key] = plan(spec, key[1])
        return self._plans[key]


def _has_drafts(plan: StepPlan) -> bool:
    """Whether rows are open that drafts were fed to, or follow such: a draw alone needs no help."""
    # A list, as a generator is entered once for each sequence, in steps that know of no drafts too.
    helped = [
        step.drawn_index >= 0 and (step.open_rows > 0 or step.scored_rows > 0)
        for step in plan.sequences
    ]
    return any(helped)


_Draw = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]


def _no_draws(logits_QV: torch.Tensor, number: int) -> torch.Tensor:
    raise PluginFailed(
        "a drafter whose capabilities say law = 'one_hot' draws",
        hint="report this to its authors: what is drawn has a law",
    )
