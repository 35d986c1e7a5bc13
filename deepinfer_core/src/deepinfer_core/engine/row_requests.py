"""Which rows of a step are sampled, and with what settings?

Depends on each sequence alone, so that no request's tokens depend on its neighbours.
"""

from __future__ import annotations

from deepinfer_core.engine.admission import Rules
from deepinfer_core.engine.rows import RowRequest
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.engine.token_history import last_of_bad_sequences, seen_tokens
from deepinfer_core.schedule.plan import SequenceStep, StepPlan

__all__ = ["sampled_rows"]


def sampled_rows(
    plan: StepPlan, sequences: list[Sequence], rules: Rules
) -> tuple[tuple[RowRequest, ...], list[Sequence]]:
    """The rows to sample, and the sequence of each.

    Args:
        plan: the step.
        sequences: the sequence of each entry of the plan.
        rules: of the engine.
    """
    rows: list[RowRequest] = []
    owners: list[Sequence] = []
    first_row = 0
    for step, sequence in zip(plan.sequences, sequences, strict=True):
        last_row = first_row + len(step.token_ids) - 1
        mine = _scoring_rows(step, sequence, first_row) if step.wants_scores else []
        if step.wants_token:
            mine.append(_drawing_row(sequence, rules, last_row))
        rows += mine
        owners += [sequence] * len(mine)
        first_row = last_row + 1
    return tuple(rows), owners


def _scoring_rows(step: SequenceStep, sequence: Sequence, first_row: int) -> list[RowRequest]:
    """Rows that score the next prompt token: it is forced, and only its probability is read."""
    prompt = sequence.request.prompt_ids
    alternatives = sequence.request.params.prompt_alternatives or 0
    end = min(step.start + 1 + len(step.token_ids), len(prompt))
    return [
        RowRequest(
            row=first_row + position - step.start - 1,
            position=position,
            seed=0,
            forced=prompt[position],
            alternatives=alternatives,
        )
        for position in range(step.start + 1, end)
    ]


def _drawing_row(sequence: Sequence, rules: Rules, row: int) -> RowRequest:
    request, done = sequence.request, sequence.output_count
    params, golden = request.params, request.params.golden_ids
    return RowRequest(
        row=row,
        position=len(sequence.tokens),
        seed=request.seed,
        temperature=float(params.temperature),
        top_p=float(params.top_p),
        top_k=int(params.top_k),
        min_p=float(params.min_p),
        forced=golden[done] if done < len(golden) else None,
        banned=_banned(sequence, rules),
        allowed=params.allowed_ids,
        bias=params.biases,
        repetition_penalty=float(params.repetition_penalty),
        frequency_penalty=float(params.frequency_penalty),
        presence_penalty=float(params.presence_penalty),
        seen=_seen(sequence),
        alternatives=params.alternatives or 0,
    )


def _banned(sequence: Sequence, rules: Rules) -> tuple[int, ...]:
    """Tokens not to draw now; by the output, so that recomputing a sequence changes nothing."""
    params, done = sequence.request.params, sequence.output_count
    banned = set(rules.banned_ids)
    if done < max(params.min_tokens, params.first_n_token_no_eos):
        banned |= rules.eos_ids
    if done < params.min_tokens:
        banned |= set(params.stop_ids)
    if sequence.request.bad_sequences:
        banned |= last_of_bad_sequences(sequence.output_ids, sequence.request.bad_sequences)
    return tuple(sorted(banned))


def _seen(sequence: Sequence) -> tuple[tuple[int, int], ...]:
    """What the penalties need to know; nothing if there are none."""
    params = sequence.request.params
    is_repetition = params.repetition_penalty != 1
    if not (is_repetition or params.frequency_penalty or params.presence_penalty):
        return ()
    prompt = sequence.request.prompt_ids
    return seen_tokens(prompt, sequence.output_ids, with_prompt=is_repetition)
