"""Which rows of a step are sampled, and with what settings?

Depends on each sequence alone, so that no request's tokens depend on its neighbours.
"""

from __future__ import annotations

from deepinfer_core.engine.admission import Rules
from deepinfer_core.engine.rows import RowRequest, RowSettings
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.engine.token_history import last_of_bad_sequences, seen_tokens
from deepinfer_core.schedule.plan import SequenceStep, StepPlan

__all__ = ["sampled_rows"]


def sampled_rows(
    plan: StepPlan, sequences: list[Sequence], rules: Rules
) -> tuple[tuple[RowRequest, ...], list[Sequence]]:
    """The rows to sample, and the sequence of each; remembers the place of each drawn one.

    Args:
        plan: the step.
        sequences: the sequence of each entry of the plan; those that are gone need no rows.
        rules: of the engine.
    """
    rows: list[RowRequest] = []
    owners: list[Sequence] = []
    place = 0
    for step, sequence in zip(plan.sequences, sequences, strict=True):
        scored, wants_token = step.scored_rows, step.wants_token
        if not sequence.is_gone:
            if scored:
                rows += _scoring_rows(step, sequence, place)
                owners += [sequence] * scored
            if wants_token:
                sequence.drawn_index = len(rows)
                rows.append(_drawing_row(sequence, rules, place + scored))
                owners.append(sequence)
        place += scored + wants_token
    return tuple(rows), owners


def _scoring_rows(step: SequenceStep, sequence: Sequence, place: int) -> list[RowRequest]:
    """Rows that score the next prompt token: it is forced, and only its probability is read."""
    prompt = sequence.request.prompt_ids
    settings = RowSettings(alternatives=sequence.request.params.prompt_alternatives or 0)
    return [
        RowRequest(place + row, step.start + row + 1, settings, prompt[step.start + row + 1])
        for row in range(step.scored_rows)
    ]


def _drawing_row(sequence: Sequence, rules: Rules, place: int) -> RowRequest:
    length, plain_from = len(sequence.tokens), sequence.rules.plain_from
    done = length - sequence.prompt_tokens
    if plain_from is not None and done >= plain_from:
        return RowRequest(place, length, sequence.settings, None, sequence.rules.banned)
    golden = sequence.request.params.golden_ids
    return RowRequest(
        place,
        length,
        sequence.settings,
        golden[done] if done < len(golden) else None,
        _banned(sequence, rules),
        _seen(sequence),
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
