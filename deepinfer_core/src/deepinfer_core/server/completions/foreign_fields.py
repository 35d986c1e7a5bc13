"""Which fields of other interfaces would change the answer, if they were honoured here?

Such a field is taken with the value that asks for what is done anyway, as many clients write it,
and refused with any other: an answer that silently lacks what was asked for is a wrong one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from deepinfer_core.engine.checks import shown
from deepinfer_core.errors import RequestError

__all__ = ["FOREIGN_FIELDS", "check_foreign_fields"]

FOREIGN_FIELDS: Mapping[str, object] = MappingProxyType(
    {
        "add_special_tokens": True,
        "cache_salt": None,
        "early_stopping": False,
        "length_penalty": 1,
        "logits_processors": None,
        "lora_path": None,
        "messages": None,
        "no_repeat_ngram_size": 0,
        "no_stop_trim": False,
        "prompt_embeds": None,
        "prompt_logprobs": None,
        "return_hidden_states": False,
        "return_token_ids": False,
        "return_tokens_as_token_ids": False,
        "spaces_between_special_tokens": True,
        "tool_choice": "none",
        "tools": None,
        "top_logprobs": None,
        "truncate_prompt_tokens": None,
        "typical_p": 1,
        "use_beam_search": False,
    }
)
"""Each with the one value that is taken; None: there is none."""

_CHAT = "send conversations to /v1/chat/completions"
_INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        "cache_salt": "user keeps cached prefixes apart",
        "messages": _CHAT,
        "prompt_logprobs": "log-probabilities of the prompt come with logprobs and echo",
        "tool_choice": _CHAT,
        "tools": _CHAT,
        "top_logprobs": "logprobs is the number of alternatives",
    }
)


def check_foreign_fields(given: Mapping[str, Any]) -> None:
    """Refuse what only another server would do.

    Args:
        given: fields of a body that are not null.

    Raises:
        RequestError: a field has another value than the one that is taken.
    """
    for name in sorted(given.keys() & FOREIGN_FIELDS.keys()):
        value, taken = given[name], FOREIGN_FIELDS[name]
        if value != taken or isinstance(value, bool) is not isinstance(taken, bool):
            hint = f"leave it out, or give {taken!r}" if taken is not None else "leave it out"
            raise RequestError(
                f"{name} is {shown(value)}, which this endpoint does not do",
                hint=_INSTEAD.get(name, hint),
            )
