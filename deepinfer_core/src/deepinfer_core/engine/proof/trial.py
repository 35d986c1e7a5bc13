"""Do the bits of a row depend on that row alone, and on nothing that changes from call to call?

A trial is one operator with a pool of random rows. Each row of the pool runs alone; then rows drawn
from the pool run in batches of many sizes, so that each stands first, last and in the middle beside
ever other rows. Whatever differs from the row alone is a breach.

Shapes: N rows of a batch, P rows of the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from deepinfer_core.interfaces.component import Plan

__all__ = ["POOL_ROWS", "ROW_COUNTS", "Trial", "batch_breach", "repeat_breach"]

POOL_ROWS = 9
"""Rows of a pool. All of them stand in every larger batch, each several times."""

ROW_COUNTS = (2, 3, 5, 7, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 257)
"""Sizes of batches: small ones, and those around the tiles that kernels take rows in."""

_REPEATED_ROWS = (9, 65)
"""Sizes of batches that run twice."""

_SEED = 20260

_Rows = Sequence[torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One operator of one slot.

    Attributes:
        kind, slot: the place that the component fills.
        operator: the operator and the shape it runs at, for a message.
        run: outputs, rows first, for rows of the pool by their indices, int64 [N] on the host.
        most_rows: largest batch.
        plan: gives the plan for so many rows; None for an operator that needs none.
    """

    kind: str
    slot: str
    operator: str
    run: Callable[[torch.Tensor], _Rows]
    most_rows: int = ROW_COUNTS[-1]
    plan: Callable[[int], Plan] | None = None


def batch_breach(trial: Trial, most_rows: int) -> str:
    """Look for a row whose bits depend on its batch.

    Args:
        trial: the operator.
        most_rows: of a step of the engine.

    Returns:
        What was found, or an empty text.
    """
    rows = min(most_rows, trial.most_rows)
    alone = [_bytes(trial.run(torch.tensor([row]))) for row in range(POOL_ROWS)]
    want = [torch.cat(parts) for parts in zip(*alone, strict=True)]
    for order in _orders(rows):
        for output, got in enumerate(_bytes(trial.run(order))):
            row = _first_difference(got, want[output][order.to(got.device)])
            if row is not None:
                return f"row {row} of {len(order)} has other bits than alone in output {output}"
    if trial.plan is not None and not trial.plan(rows).batch_invariant:
        return f"its plan for {rows} rows says that it is not batch invariant"
    return ""


def repeat_breach(trial: Trial, most_rows: int) -> str:
    """Look for a call with other bits the second time; arguments of ``batch_breach``."""
    for count in sorted({min(n, most_rows, trial.most_rows) for n in _REPEATED_ROWS}):
        order = torch.arange(count) % POOL_ROWS
        first = _bytes(trial.run(order))
        trial.run(order.flip(0))
        for output, got in enumerate(_bytes(trial.run(order))):
            row = _first_difference(got, first[output])
            if row is not None:
                return f"row {row} of {count} has other bits the second time in output {output}"
    return ""


def _orders(most_rows: int) -> Iterator[torch.Tensor]:
    """Batches in growing sizes, then single rows again, now that plans have room for many."""
    generator = torch.Generator().manual_seed(_SEED)
    for count in ROW_COUNTS:
        if count <= most_rows:
            order = torch.randint(POOL_ROWS, (count,), generator=generator)
            yield order
            if count < POOL_ROWS:
                yield order.flip(0)
    yield torch.tensor([0])
    yield torch.tensor([POOL_ROWS - 1])


def _bytes(outputs: _Rows) -> list[torch.Tensor]:
    """The bytes of each row, [N, B] for each output."""
    return [
        output.reshape(output.shape[0], -1).contiguous().view(torch.uint8).clone()
        for output in outputs
    ]


def _first_difference(got_NB: torch.Tensor, want_NB: torch.Tensor) -> int | None:
    if torch.equal(got_NB, want_NB):
        return None
    return int((got_NB != want_NB).any(1).nonzero()[0])
