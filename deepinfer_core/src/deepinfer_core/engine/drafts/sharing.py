"""Which steps may the device share out, and how many rows can each sequence then feed?"""

from __future__ import annotations

from collections.abc import Sequence

from deepinfer_core.engine.sequence import Sequence as Text
from deepinfer_core.schedule.plan import SequenceStep

__all__ = ["with_room"]


def with_room(
    steps: Sequence[SequenceStep], texts: Sequence[Text], block_tokens: int
) -> list[SequenceStep] | None:
    """Note in each entry of a plan how many rows it can feed.

    Args:
        steps: all entries, of sequences that decode.
        texts: whose they are.
        block_tokens: of a block.

    Returns:
        The entries; None where nothing is to be shared out: some row is known already, no draft is
        verified, or all are.
    """
    if any(step.token_ids[0] >= 0 for step in steps):
        return None
    pairs = list(zip(steps, texts, strict=True))
    most, rows = [_most_rows(*pair, block_tokens) for pair in pairs], sum(map(_rows, steps))
    if rows in (len(steps), sum(most)):
        return None
    return [step._replace(most_rows=count) for step, count in zip(steps, most, strict=True)]


def _rows(step: SequenceStep) -> int:
    return len(step.token_ids)


def _most_rows(step: SequenceStep, text: Text, block_tokens: int) -> int:
    """It has drafts, and blocks; and all of them and one token more fit into its text.

    Never fewer than planned: a text may have reached its length if all drafts before were kept.
    """
    drafts = min(text.drafts.open_count, text.longest - step.start - 2)
    roomy = min(1 + drafts, len(step.block_ids) * block_tokens - step.start)
    return max(roomy, _rows(step))
