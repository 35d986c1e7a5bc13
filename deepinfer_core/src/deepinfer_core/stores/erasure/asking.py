"""What is known of a block that children are asked for, and of a call that one has not answered?"""

from __future__ import annotations

from dataclasses import dataclass, field

from deepinfer_core.interfaces.kv_store import Outcome

__all__ = ["Asked", "Call"]


@dataclass(slots=True, kw_only=True)
class Asked:
    """One block on the way.

    Attributes:
        place: which of the blocks.
        reserve: children that can still be asked, the next one last.
        pending: children that have been asked and have not answered.
        failed: by child, why it has not got the block.
        is_done: whether nothing more is needed.
    """

    place: int
    reserve: list[int]
    pending: set[int] = field(default_factory=set)
    failed: dict[int, Outcome] = field(default_factory=dict)
    is_done: bool = False


@dataclass(slots=True, kw_only=True)
class Call:
    """A call that a child has not answered."""

    child: int
    places: list[int]
    since_s: float
    late_at_s: float
    is_late: bool = False
