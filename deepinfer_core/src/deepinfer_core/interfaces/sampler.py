"""How do logits become tokens?

Order of work on a row: mask, bias, repetition penalty, frequency penalty, presence penalty (these
five adjust the logits: ``reference.logits_rules.adjusted`` does it for samplers that have nothing
faster), temperature, top-k and top-p on one sorted order (logit descending, then id ascending; the
shorter prefix wins), min-p, draw. What is masked stays at -inf, whatever its bias. A draw depends
on (seed, position) and the row's logits and settings, never on the other rows; the penalties' state
of a row are the tokens before it, so a row is adjusted alike wherever it runs. Temperature 0 takes
the largest adjusted logit, lowest id first.

Rows may verify drafts. Under the match rule that is the caller's affair: it compares ordinary draws
with the drafts. Under the *ratio* rule the sampler decides. Call p the law that a row would be
drawn from, and g the law that its draft d was drawn from. The draft is accepted with probability
min(1, p(d) / g(d)); if it is not, the token is drawn from max(p - g, 0). So the token has law p,
whatever g is. Laws of drafts are whole numbers in proportion to probabilities.

Shapes: R rows, V vocabulary, W = ceil(V / 32) mask words, A alternatives, B biases and N earlier
tokens of the row that has the most, P rows of kept laws.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.component import Component, Plan

if TYPE_CHECKING:
    import torch

__all__ = [
    "DraftedRows",
    "LogitsRules",
    "Sampler",
    "SamplerOutputs",
    "SamplerRows",
    "SamplerSpec",
    "Verdicts",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerSpec:
    """What a call looks like.

    Attributes:
        vocabulary: V.
        alternatives: A, the most alternatives that any row of the engine may ask for.
    """

    vocabulary: int
    alternatives: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitsRules:
    """How each row's logits are changed before temperature.

    The tokens of one row are distinct. Padding may stand anywhere; its second number means nothing.

    Attributes:
        bias_token_RB: int64, -1 is padding.
        bias_RB: fp32, finite; added to the logit of its token.
        seen_token_RN: int64, tokens of the prompt and of the output before the row; -1 is padding.
        output_count_RN: int64, how often each of them stands in the output; 0 for one that stands
            in the prompt alone.
        repetition_R: fp32 > 0; a seen token's logit is divided by it if positive, else multiplied.
        frequency_R: fp32, finite; subtracted once for each time that a token stands in the output.
        presence_R: fp32, finite; subtracted once if it does at all.
    """

    bias_token_RB: torch.Tensor
    bias_RB: torch.Tensor
    seen_token_RN: torch.Tensor
    output_count_RN: torch.Tensor
    repetition_R: torch.Tensor
    frequency_R: torch.Tensor
    presence_R: torch.Tensor

    def tile(self, rows: slice) -> LogitsRules:
        """The same for some of the rows; views."""
        return LogitsRules(**_tiled(self, rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerRows:
    """The settings of each row.

    Attributes:
        temperature_R: fp32, >= 0; 0 is greedy.
        top_p_R: fp32 in (0, 1]; 1 keeps all. A token is dropped if the mass before it, in units of
            2^-31, exceeds this share; mass equal to it keeps the token.
        top_k_R: int64; -1 keeps all.
        min_p_R: fp32 in [0, 1); keeps tokens with at least this share of the best probability.
        seed_R: int64, the bits of an unsigned 64-bit seed.
        position_R: int64, position that the drawn token will have.
        forced_R: int64 token to emit in place of the draw, or -1.
        allowed_RW: int32 bit mask, bit i of word w allows token 32 * w + i; None allows all.
        rules: bias and penalties; None changes nothing.
    """

    temperature_R: torch.Tensor
    top_p_R: torch.Tensor
    top_k_R: torch.Tensor
    min_p_R: torch.Tensor
    seed_R: torch.Tensor
    position_R: torch.Tensor
    forced_R: torch.Tensor
    allowed_RW: torch.Tensor | None = None
    rules: LogitsRules | None = None

    def tile(self, rows: slice) -> SamplerRows:
        """The same for some of the rows; views."""
        return SamplerRows(**_tiled(self, rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerOutputs:
    """Buffers that a call fills.

    Attributes:
        token_R: int64.
        logprob_R: fp32 log-probability of the token under the raw model distribution.
        processed_logprob_R: the same under the distribution that was drawn from; -inf if dropped.
        top_token_RA: int64, raw distribution, best first, ties by lower id.
        top_logprob_RA: fp32.
        invalid_R: bool, set where logits hold NaN or +inf, or nothing is allowed; the row's other
            outputs are then unspecified. The other rows are unharmed.
    """

    token_R: torch.Tensor
    logprob_R: torch.Tensor
    processed_logprob_R: torch.Tensor
    top_token_RA: torch.Tensor
    top_logprob_RA: torch.Tensor
    invalid_R: torch.Tensor

    def tile(self, rows: slice) -> SamplerOutputs:
        """The buffers of some of the rows; views."""
        return SamplerOutputs(**_tiled(self, rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftedRows:
    """What each row verifies under the ratio rule.

    Attributes:
        draft_R: int64 token that was fed behind the row; -1: none, the row is drawn as by ``run``.
        law_row_R: int64 row of ``law_PV`` with the law that the draft was drawn from; -1: none, the
            draft was certain.
        law_PV: int32 laws, each row at least one positive number; None if all drafts were certain.
    """

    draft_R: torch.Tensor
    law_row_R: torch.Tensor
    law_PV: torch.Tensor | None = None

    def tile(self, rows: slice) -> DraftedRows:
        """The same for some of the rows, with all laws; views."""
        return DraftedRows(
            draft_R=self.draft_R[rows], law_row_R=self.law_row_R[rows], law_PV=self.law_PV
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """Buffers that a verification fills.

    Attributes:
        accepted_R: bool, whether the row's token is its draft because that was accepted; where a
            token was forced, whether it is the draft.
        overlap_R: fp32, probability with which a draft of that law is accepted: the sum of
            min(p, g); 0 where there is none.
    """

    accepted_R: torch.Tensor
    overlap_R: torch.Tensor

    def tile(self, rows: slice) -> Verdicts:
        """The buffers of some of the rows; views."""
        return Verdicts(**_tiled(self, rows))


def _tiled(
    whole: LogitsRules | SamplerRows | SamplerOutputs | Verdicts, rows: slice
) -> dict[str, Any]:
    """Every field for some of the rows; None stays None."""
    found: dict[str, Any] = {}
    for field in fields(whole):
        value = getattr(whole, field.name)
        if isinstance(value, LogitsRules):
            found[field.name] = value.tile(rows)
        else:
            found[field.name] = None if value is None else value[rows]
    return found


class Sampler(Component):
    """Draws one token a row."""

    @abstractmethod
    def plan(self, spec: SamplerSpec, max_rows: int) -> Plan:
        """Prepare for at most ``max_rows`` rows."""

    @abstractmethod
    def run(
        self, plan: Plan, logits_RV: torch.Tensor, rows: SamplerRows, out: SamplerOutputs
    ) -> None:
        """Sample every row.

        Args:
            plan: from ``plan``.
            logits_RV: fp32 or fp64, read only.
            rows: settings.
            out: buffers, overwritten.
        """

    def plan_ratio(self, spec: SamplerSpec, max_rows: int) -> Plan:
        """Prepare ``verify`` and ``draw_drafts`` for at most ``max_rows`` rows.

        Raises:
            NotSupported: this sampler has no ratio rule; so says this body.
        """
        raise NotSupported(
            "asked for speculation.rule = 'ratio', found a sampler that cannot verify by it",
            hint='set speculation.rule = "match", or choose another sampler, as core.reference',
        )

    def verify(
        self,
        plan: Plan,
        logits_RV: torch.Tensor,
        rows: SamplerRows,
        drafted: DraftedRows,
        out: SamplerOutputs,
        verdicts: Verdicts,
    ) -> None:
        """Accept or replace the draft of every row by the ratio rule; rows do not look at others.

        The uniform numbers of a position are other ones for acceptance, for a token that replaces a
        draft, and for a row without one.

        Args:
            plan: from ``plan_ratio``.
            logits_RV: fp32 or fp64, read only.
            rows: settings.
            drafted: the drafts.
            out: buffers, overwritten; log-probabilities are of p, whoever drew the token.
            verdicts: buffers, overwritten.
        """
        raise NotImplementedError

    def draw_drafts(
        self,
        plan: Plan,
        logits_RV: torch.Tensor,
        rows: SamplerRows,
        law_row_R: torch.Tensor,
        law_PV: torch.Tensor,
        token_R: torch.Tensor,
    ) -> None:
        """Draw drafts, and keep the laws that they were drawn from.

        Args:
            plan: from ``plan_ratio``.
            logits_RV: fp32 or fp64, of a drafter; read only.
            rows: settings; nothing is forced. The caller gives seeds that no token is drawn with.
            law_row_R: int64 rows of ``law_PV``, distinct but for 0, which is for padding.
            law_PV: int32, these rows are overwritten.
            token_R: int64, overwritten. A row whose logits are invalid gives any token, with the
                law that makes this right.
        """
        raise NotImplementedError
