"""What is a step, and what does one of its operators need? Plain numbers, without torch.

Shapes: T rows.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Load", "Operator", "Storage", "distinct_experts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """What cannot be avoided in one operator.

    Attributes:
        name: of the operator, with the part of the layer in front.
        moved_bytes: read from and written to the device's memory.
        flops: a product and a sum are two.
    """

    name: str
    moved_bytes: float
    flops: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """How many bytes the components keep.

    Attributes:
        dense, expert, plain: a value of a dense FP8 weight, of a routed expert, of a bf16 weight.
        activation: a value between operators.
        window_row, entry_row, index_row: a cached row.
    """

    dense: float
    expert: float
    plain: float
    activation: int
    window_row: int
    entry_row: int
    index_row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A step of equal sequences.

    Attributes:
        sequences: how many.
        rows: that each of them feeds.
        start: position of its first row.
        drawn: rows whose logits are wanted, of each.
        experts: distinct routed experts that the rows of a layer are sent to.
    """

    sequences: int
    rows: int
    start: int
    drawn: int
    experts: float

    @property
    def all_rows(self) -> int:
        """T."""
        return self.sequences * self.rows

    @property
    def end(self) -> int:
        """Position behind the last row."""
        return self.start + self.rows

    def seen(self, ratio: int, most: int) -> int:
        """Sum over a sequence's rows of the keys that each sees.

        Args:
            ratio: tokens of a key.
            most: keys that a row sees at most.
        """
        return sum(min((p + 1) // ratio, most) for p in range(self.start, self.end))


def distinct_experts(experts: int, chosen: int, rows: int) -> float:
    """Expected number of experts that rows are sent to, if each chooses at random.

    Args:
        experts: to choose from.
        chosen: by one row.
        rows: how many choose.
    """
    return float(experts * (1 - (1 - chosen / experts) ** rows))
