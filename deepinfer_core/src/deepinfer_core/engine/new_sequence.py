"""How does a request that passed every check become a sequence that waits?"""

from __future__ import annotations

from deepinfer_core.engine.admission import Rules
from deepinfer_core.engine.grammar_masks import Grammars
from deepinfer_core.engine.prefix_reuse import ReusePolicy
from deepinfer_core.engine.request import Request
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.engine.text import TextStream
from deepinfer_core.engine.token_rules import token_rules
from deepinfer_core.engine.tokenizer import Tokenizer
from deepinfer_core.schedule.rank import rank_of

__all__ = ["new_sequence"]


def new_sequence(
    number: int,
    request: Request,
    rules: Rules,
    *,
    tokenizer: Tokenizer | None,
    grammars: Grammars,
    policy: ReusePolicy,
    priority_boost_s: float,
) -> Sequence:
    """Make a sequence; its grammar begins to be compiled.

    Args:
        number: the engine's.
        request: what was asked.
        rules: of the engine.
        tokenizer: gives text; None: all text is empty.
        grammars: constraints of requests.
        policy: what is reused.
        priority_boost_s: head start of one step of priority.

    Raises:
        RequestError: its grammar cannot be used.
    """
    params, options = request.params, request.options
    return Sequence(
        sequence_id=number,
        request=request,
        rank=rank_of(request.arrival_s, options.priority, number, priority_boost_s),
        tokens=list(request.prompt_ids),
        text=TextStream(params.stop_strings, include_stop=params.include_stop_str_in_output),
        settings=request.settings(),
        rules=token_rules(request, rules, tokenizer),
        constraint=grammars.constraint(request),
        keep_from=rules.keep_from(len(request.prompt_ids)),
        chain=policy.chain(options.cache_salt),
    )
