"""What does one visitor of a service ask, in which order?

A script is a conversation with gaps: each turn adds messages and asks for an answer. The answer is
the service's own, unless the next turn brings a recorded one along.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Message", "Script", "continued", "known_messages"]

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One conversation.

    Attributes:
        name: for messages.
        kind: of the load; figures name it.
        turns: messages that are added before each request; at least one turn, none is empty. A turn
            that begins with a message of the assistant brings the answer to the one before.
        fields: of every request's body, beside messages: ``tools``, ``response_format``.
    """

    name: str
    kind: str
    turns: tuple[tuple[Message, ...], ...]
    fields: Mapping[str, Any] = field(default_factory=dict)


def continued(
    history: Sequence[Message], answer: str, turn: Sequence[Message]
) -> tuple[Message, ...]:
    """What the next request says.

    Args:
        history: of the request before; empty for the first turn.
        answer: text that came back; an empty one is left out.
        turn: the next turn.
    """
    is_recorded = turn[0]["role"] == "assistant"
    said = () if is_recorded or not answer else ({"role": "assistant", "content": answer},)
    return (*history, *said, *turn)


def known_messages(script: Script) -> tuple[Message, ...]:
    """The longest conversation of a script that no answer of a service is needed for."""
    history = script.turns[0]
    for turn in script.turns[1:]:
        if turn[0]["role"] != "assistant":
            break
        history = (*history, *turn)
    return history
