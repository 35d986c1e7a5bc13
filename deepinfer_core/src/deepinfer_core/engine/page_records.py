"""What is noted down about a sequence that enters, and about a copy of a state?"""

from __future__ import annotations

from typing import NamedTuple

from deepinfer_core.cache.recovery import Resume
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.schedule.snapshot import SequenceView

__all__ = ["Entry", "Saved"]


class Entry(NamedTuple):
    """What a waiting sequence would take over if it were admitted now.

    Attributes:
        view: what the policy sees.
        resume: where it resumes; None at a fork.
        block_ids: blocks to share.
    """

    view: SequenceView
    resume: Resume | None
    block_ids: tuple[int, ...]


class Saved(NamedTuple):
    """A copy of a state that a step makes.

    Attributes:
        sequence: whose state.
        admission: of its stays, the one that the state belongs to.
        tokens: rows behind which it is.
        slot: of the copy.
        is_fork: kept for other samples of the prompt; otherwise for whoever has this prefix.
    """

    sequence: Sequence
    admission: int
    tokens: int
    slot: int
    is_fork: bool
