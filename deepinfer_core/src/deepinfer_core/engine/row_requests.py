"""Which rows of a step are sampled, and with what settings?

Depends on each sequence alone, so that no request's tokens depend on its neighbours.
"""

from __future__ import annotations

from deepinfer_core.engine.admission import Rules
from deepinfer_core.engine.rows import RowRequest, RowSettings
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.engine.token_history import last_of_bad_sequences, seen_tokens
from deepinfer_core.schedule.plan import SequenceStep, StepPlan

__all__ = ["sampled_rows", "verified_drafts"]


def sampled_rows(
    plan: StepPlan, sequences: list[Sequence], rules: Rules, laws_each: int = 0
) -> tuple[tuple[RowRequest, ...], list[Sequence]]:
    """The rows to sample, and the sequence of each; remembers the place of each first drawn one.

    Args:
        plan: the step.
        sequences: the sequence of each entry of the plan; those that are gone need no rows.
        rules: of the engine.
        laws_each: laws that are kept for the drafts of one sequence; 0: drafts are certain.
    """
    rows: list[RowRequest] = []
    owners: list[Sequence] = []
    place = 0
    for step, sequence in zip(plan.sequences, sequences, strict=True):
        scored, wants_token = step.scored_rows, step.wants_token
        if not sequence.is_gone:
            drafts = verified_drafts(step, sequence) if scored else 0
            if scored and not drafts:
                rows += _scoring_rows(step, sequence, place)
                owners += [sequence] * scored
            if wants_token:
                sequence.drawn_index = len(rows)
                if drafts:
                    first_law = step.place * laws_each if laws_each else -1
                    rows += _verifying_rows(sequence, rules, place, drafts, first_law)
                    owners += [sequence] * (drafts + 1)
                else:
                    rows.append(_drawing_row(sequence, rules, place + scored))
                    owners.append(sequence)
        place += scored + wants_token
    return tuple(rows), owners


def verified_drafts(step: SequenceStep, sequence: Sequence) -> int:
    """How many drafts an entry of a plan feeds; its other scored rows are of a prompt."""
    return step.scored_rows if step.start >= sequence.prompt_tokens else 0


def _scoring_rows(step: SequenceStep, sequence: Sequence, place: int) -> list[RowRequest]:
    """Rows that score the next prompt token: it is forced, and only its probability is read."""
    prompt = sequence.request.prompt_ids
    settings = RowSettings(alternatives=sequence.request.params.prompt_alternatives or 0)
    return [
        RowRequest(place + row, step.start + row + 1, settings, prompt[step.start + row + 1])
        for row in range(step.scored_rows)
    ]


def _verifying_rows(
    sequence: Sequence, rules: Rules, place: int, count: int, first_law: int
) -> list[RowRequest]:
    """A row for each draft and one behind the last: each is drawn as if all before it were kept."""
    ids = sequence.drafts.ids[:count]
    rows: list[RowRequest] = []
    for row in range(count + 1):
        request = _drawing_row(sequence, rules, place + row, ids[:row])
        if row < len(ids):
            law = first_law + row if first_law >= 0 else -1
            request = request._replace(draft=ids[row], law_row=law)
        elif row > len(ids):
            # There was no draft to feed here; the row before is the last that matters.
            request = request._replace(position=request.position + row - len(ids))
        rows.append(request)
    return rows


def _drawing_row(
    sequence: Sequence, rules: Rules, place: int, drafts: tuple[int, ...] = ()
) -> RowRequest:
    """The row behind all known tokens and some drafts."""
    length, plain_from = len(sequence.tokens) + len(drafts), sequence.rules.plain_from
    done = length - sequence.prompt_tokens
    if plain_from is not None and done >= plain_from:
        return RowRequest(place, length, sequence.settings, None, sequence.rules.banned)
    golden = sequence.request.params.golden_ids
    output = (*sequence.output_ids, *drafts)
    return RowRequest(
        place,
        length,
        sequence.settings,
        golden[done] if done < len(golden) else None,
        _banned(sequence, rules, output),
        _seen(sequence, output),
    )


def _banned(sequence: Sequence, rules: Rules, output: tuple[int, ...]) -> tuple[int, ...]:
    """Tokens not to draw now; by the output, so that recomputing a sequence changes nothing."""
    params, done = sequence.request.params, len(output)
    banned = set(rules.banned_ids)
    if done < max(params.min_tokens, params.first_n_token_no_eos):
        banned |= rules.eos_ids
    if done < params.min_tokens:
        banned |= set(params.stop_ids)
    if sequence.request.bad_sequences:
        banned |= last_of_bad_sequences(output, sequence.request.bad_sequences)
    return tuple(sorted(banned))


def _seen(sequence: Sequence, output: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """What the penalties need to know; nothing if there are none."""
    params = sequence.request.params
    is_repetition = params.repetition_penalty != 1
    if not (is_repetition or params.frequency_penalty or params.presence_penalty):
        return ()
    prompt = sequence.request.prompt_ids
    return seen_tokens(prompt, output, with_prompt=is_repetition)
