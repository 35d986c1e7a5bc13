"""What does a request ask of each of its tokens, in the form that a step looks at?

A step looks at every running sequence, and most of what may be asked for is asked for by nobody;
so it is worked out once a request.
"""

from __future__ import annotations

from collections.abc import Iterator

from deepinfer_core.engine.admission import Rules
from deepinfer_core.engine.request import Request
from deepinfer_core.engine.sequence import TokenRules
from deepinfer_core.engine.tokenizer import Tokenizer

__all__ = ["token_rules"]


def token_rules(request: Request, rules: Rules, tokenizer: Tokenizer | None) -> TokenRules:
    """Work them out.

    Args:
        request: what was asked.
        rules: of the engine.
        tokenizer: gives text; None: all text is empty.
    """
    params, stop_ids = request.params, frozenset(request.params.stop_ids)
    return TokenRules(
        end_ids=stop_ids if params.ignore_eos else stop_ids | rules.eos_ids,
        shown_end_ids=stop_ids if params.include_stop_str_in_output else frozenset(),
        banned=tuple(sorted({*rules.banned_ids, *_banned_alone(request)})),
        plain_from=_plain_from(request),
        searched_from=params.min_tokens,
        pieces=tokenizer.pieces_of(skip_control=params.skip_special_tokens) if tokenizer else {},
    )


def _banned_alone(request: Request) -> Iterator[int]:
    """Tokens that are a bad sequence by themselves, whatever stands before them."""
    return (one[0] for one in request.bad_sequences if len(one) == 1)


def _plain_from(request: Request) -> int | None:
    params = request.params
    if any(len(one) > 1 for one in request.bad_sequences) or params.repetition_penalty != 1:
        return None
    if params.frequency_penalty or params.presence_penalty:
        return None
    return max(params.min_tokens, params.first_n_token_no_eos, len(params.golden_ids))
