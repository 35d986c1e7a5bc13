"""Which of the drafts that a step verified were kept?"""

from __future__ import annotations

from deepinfer_core.engine.rows import RowRequest, RowResult
from deepinfer_core.engine.sequence import Sequence as Text
from deepinfer_core.interfaces.draft_planner import DraftOutcome

__all__ = ["accepted_drafts"]


def accepted_drafts(
    rows: tuple[RowRequest, ...],
    owners: list[Text],
    results: tuple[RowResult, ...],
    *,
    has_overlaps: bool,
) -> tuple[dict[int, tuple[int, ...]], list[DraftOutcome]]:
    """Which drafts were kept, by the number of the sequence, and what the drafter may learn.

    Counts them in each sequence, too.

    Args:
        rows: that the step sampled.
        owners: whose row each of them is.
        results: of each.
        has_overlaps: the rule says how likely a draft was to be accepted.
    """
    accepted: dict[int, tuple[int, ...]] = {}
    outcomes: list[DraftOutcome] = []
    if all(row.draft < 0 for row in rows):
        return accepted, outcomes
    verified: list[tuple[int, bool, float]] = []
    for row, text, result in zip(rows, owners, results, strict=True):
        if row.draft >= 0:
            verified.append((row.draft, result.accepted, result.overlap))
            continue
        if verified:
            kept = _leading([one[1] for one in verified])
            accepted[text.sequence_id] = tuple([one[0] for one in verified[:kept]])
            given = text.drafts.given
            text.drafted_tokens += len(verified)
            text.accepted_tokens += kept
            outcomes.append(
                DraftOutcome(
                    len(verified),
                    kept,
                    given.confidences if given else (),
                    given.raw if given else (),
                    tuple([one[2] for one in verified[: kept + 1]]) if has_overlaps else (),
                )
            )
            verified = []
    return accepted, outcomes


def _leading(truths: list[bool]) -> int:
    return truths.index(False) if False in truths else len(truths)
