"""How are the next tokens of a sequence guessed?

A step feeds the last certain token of a sequence, its *anchor*, and drafts of the tokens behind it;
the engine verifies them, keeps those that it accepts and draws one token more. Which tokens are
emitted, and with what probability, is the engine's business alone: it draws every draft that is
drawn at all and keeps the law that it was drawn from, so no drafter can make it lossy.

A round runs as work on the stream of the steps, behind the sampling of the step that gave the
anchors, for every sequence that drew a token in it, the first one included. What it reads lies on
the device, some of it known there only, so a drafter must not wait for the device; and shapes are
few, so that rounds can be recorded: Q is a power of two, filled up with rows of place 0 and state
slot 0, whose drafts nobody reads. A sequence keeps its *place* while it runs, and there are no more
places than may run at once, so tables go by place.

Call the last row that a sequence fed and kept its position a. The anchor belongs to a + 1, draft i
to a + 2 + i.

Shapes: Q sequences of a round, n drafts of each, V vocabulary, S places, L longest text.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.component import Component
from deepinfer_core.interfaces.draft_planner import (
    AcceptanceRule,
    DraftOutcome,
    DraftPlanner,
    StepTimer,
)

if TYPE_CHECKING:
    import torch

__all__ = [
    "Choose",
    "DraftBlock",
    "DraftHost",
    "DraftRound",
    "Drafter",
    "DrafterCapabilities",
    "Drafts",
]

Choose = Callable[["torch.Tensor", int], "torch.Tensor"]
"""From logits [Q, V] of draft number i of all sequences to tokens int64 [Q]; called with 0, 1, 2
and so on, each at most once a round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterCapabilities:
    """What a drafter can do.

    Attributes:
        max_drafts: most drafts of a round.
        law: ``full``: drafts are drawn by ``Choose`` from the drafter's own logits, and accepted by
            what these say. ``one_hot``: the drafter names tokens, and a named token counts as drawn
            with certainty, which is exact however it came about.
        has_confidence: whether it says how likely its drafts are accepted.
        reads_tokens: whether it wants ``DraftRound.token_SL``.
        uses_block: whether it wants ``DraftHost.block``; it then drafts only for checkpoints that
            bring one.
    """

    max_drafts: int
    law: Literal["full", "one_hot"]
    has_confidence: bool = False
    reads_tokens: bool = False
    uses_block: bool = False


class DraftBlock(Protocol):
    """The draft network of a checkpoint, over the engine's caches.

    The forward pass of every step leaves the features that it needs, so it has seen all rows.
    """

    def __call__(
        self, wanted: DraftRound, *, count: int, choose: Choose
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run a round.

        Args:
            wanted: the sequences.
            count: n.
            choose: picks tokens from logits.

        Returns:
            Ids int64 [Q, n]; logits of confidences [Q, n], neither scaled nor clipped: how likely
            a draft is accepted if all before it are.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftHost:
    """What a drafter is told about its engine.

    Attributes:
        drafts: n of every round, at most ``max_drafts``.
        vocabulary: V.
        max_sequences: most sequences of a round, padding not counted; S - 1.
        max_tokens: L.
        rule: how drafts are accepted.
        torch_device: where tensors live.
        block: the draft network; None if the checkpoint has none.
        temperatures: divisors of the logits that ``block`` gives, one for each draft of a whole
            block, as the settings or the checkpoint have them.
        checkpoint: identity of the checkpoint.
        identity: of everything that changes how long steps take: checkpoint, numerics, components
            and their versions, device, driver, sizes.
        cache_dir: folder for files about this machine; empty: none is known.
        row_sizes: numbers of rows that decode steps are padded to, ascending; empty: to none.
    """

    drafts: int
    vocabulary: int
    max_sequences: int
    max_tokens: int
    rule: AcceptanceRule
    torch_device: torch.device
    block: DraftBlock | None = None
    temperatures: tuple[float, ...] = ()
    checkpoint: str = ""
    identity: str = ""
    cache_dir: str = ""
    row_sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftRound:
    """The sequences that are drafted for. Read only.

    Attributes:
        anchor_token_Q: int64 anchors.
        accepted_position_Q: int64, a of each.
        first_position_Q: int64, first position whose window keys exist.
        state_slot_Q: int64, where the block network finds rings; 0 is padding.
        place_Q: int64 from 1 to ``max_sequences``, distinct; 0 is padding.
        token_SL: int64 tokens by place and position, right up to a + 1, behind which anything may
            stand; None unless ``reads_tokens``.
    """

    anchor_token_Q: torch.Tensor
    accepted_position_Q: torch.Tensor
    first_position_Q: torch.Tensor
    state_slot_Q: torch.Tensor
    place_Q: torch.Tensor
    token_SL: torch.Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafts:
    """What a round gives.

    Attributes:
        token_Qn: int64; -1 where there is no draft, and then none behind it.
        confidence_Qn: fp32 in [0, 1]: how likely a draft is accepted if all before it are; None
            unless ``has_confidence``. It may depend on the drafts before it, and must not on the
            draft itself: it decides whether that is verified, which else would change the law.
        raw_Qn: fp32 numbers of the drafter's own, which come back in ``DraftOutcome``; None: none.
    """

    token_Qn: torch.Tensor
    confidence_Qn: torch.Tensor | None = None
    raw_Qn: torch.Tensor | None = None


class Drafter(Component):
    """Guesses tokens."""

    @property
    @abstractmethod
    def capabilities(self) -> DrafterCapabilities:
        """What it can do; the same for life."""

    def attach(self, host: DraftHost) -> None:
        """Get ready for an engine; called once, before the first round.

        Raises:
            NotSupported: it cannot draft for this engine.
        """

    @abstractmethod
    def propose(self, wanted: DraftRound, choose: Choose) -> Drafts:
        """Run a round; called by work on the stream.

        Args:
            wanted: the sequences.
            choose: draws a token with the settings of each sequence's request, and keeps the law.
                With ``law`` = ``full`` every draft is drawn by it.
        """

    def learn(self, outcomes: Sequence[DraftOutcome]) -> None:
        """Take what became of the drafts of one step; called on the host, so it must be quick."""

    def planner(self, host: DraftHost, timer: StepTimer) -> DraftPlanner:
        """Make what decides how many drafts are verified (``speculation.budget = "planned"``).

        Args:
            host: as for ``attach``.
            timer: to measure what steps take.

        Raises:
            NotSupported: it cannot say how likely its drafts are accepted, or has no such thing.
        """
        raise NotSupported(
            "asked for speculation.budget = 'planned', found a drafter that plans nothing",
            hint='set speculation.budget = "fixed", or choose a drafter with confidences',
        )
