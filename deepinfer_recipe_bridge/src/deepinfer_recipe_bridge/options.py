"""What can an operator switch for each protocol?"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["ChatOptions", "MessagesOptions", "ProtocolOptions", "ResponsesOptions", "ToolGrammar"]

ToolGrammar = Literal["auto", "off", "syntax", "schema"]
"""How far calls of tools are enforced: not at all; names and the form of a call; the schemas of
parameters too. ``auto``: schemas where a tool is strict or a call is forced, else the form."""


class ProtocolOptions(BaseModel):
    """What all protocols have in common.

    Attributes:
        compat: accept what official clients send beyond what deepseek-recipe reads.
        tool_grammar: how far calls of tools are enforced.
        max_tools: most tools of one request.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    compat: bool = True
    tool_grammar: ToolGrammar = "auto"
    max_tools: int = Field(default=128, ge=1)


class ChatOptions(ProtocolOptions):
    """Of Chat Completions."""


class ResponsesOptions(ProtocolOptions):
    """Of Responses.

    Attributes:
        store_responses: so many responses are kept in memory for ``previous_response_id``; 0: none,
            every request brings its whole history.
        store_bytes: they take at most so much memory.
    """

    store_responses: int = Field(default=0, ge=0)
    store_bytes: int = Field(default=64 * 2**20, ge=1)


class MessagesOptions(ProtocolOptions):
    """Of Messages.

    Attributes:
        messages_any_forces: ``tool_choice`` ``any`` forces a call where thinking is off; otherwise
            it is like ``auto``, as it is in the hosted service.
    """

    messages_any_forces: bool = False
