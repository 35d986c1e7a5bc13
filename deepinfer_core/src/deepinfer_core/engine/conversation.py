"""How does a conversation become token ids, and where in the answer does the answer begin?

The public ``deepseek-recipe`` library writes the prompt. It gives control tokens to the frame only
and ordinary tokens to everything that users wrote, so that nobody can forge a turn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from deepinfer_core.engine.tokenizer import Tokenizer
from deepinfer_core.errors import ConfigError, RequestError, WeightsError

__all__ = ["THINK_END", "ConversationEncoder", "ThinkingEffort", "split_answer"]

ThinkingEffort = Literal["off", "low", "high", "max"]
"""How much the model may think before it answers; ``off`` asks for the answer at once."""

THINK_END = "</think>"
"""The control token behind which the answer stands."""

_MODEL = "DeepSeek-V4.1-Flash"


class ConversationEncoder:
    """Writes prompts for one tokenizer.

    Args:
        tokenizer: has the control tokens of DeepSeek-V4.1.

    Raises:
        ConfigError: the library is not installed.
        WeightsError: the tokenizer cannot be used.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        try:
            import deepseek_recipe as recipe
        except ImportError as error:
            raise ConfigError(
                "chat needs the deepseek-recipe library, which is not installed",
                hint="pip install deepseek-recipe==0.2.0",
            ) from error
        self._recipe = recipe
        try:
            parsed = recipe.Tokenizer.from_str(tokenizer.source)
        except ValueError as error:
            raise WeightsError(f"tokenizer.json cannot be used for chat: {error}") from error
        self._encoding = recipe.DeepseekV41Encoding().with_tokenizer(parsed)
        versions = {_MODEL: recipe.ModelVersion.DeepseekV41Flash}
        self._options = recipe.ConversionOptions().with_model_versions_by_name(versions)

    def encode(
        self, messages: Sequence[Mapping[str, Any]], thinking: ThinkingEffort = "off"
    ) -> list[int]:
        """Token ids of a conversation, ready for the answer.

        Args:
            messages: each with ``role`` (``system``, ``user``, ``assistant``) and ``content``.
            thinking: effort of the answer.

        Raises:
            RequestError: the messages are malformed.
            WeightsError: the tokenizer lacks a control token.
        """
        if isinstance(messages, str | Mapping):
            raise RequestError("the messages are not a list", hint=_HINT)
        try:
            turns = [dict(message) for message in messages]
        except (ValueError, TypeError) as error:
            raise RequestError(f"the messages cannot be read: {error}", hint=_HINT) from error
        body = {"model": _MODEL, "messages": turns, **_switch(thinking)}
        try:
            request = self._recipe.ChatCompletionRequest(body).convert(self._options)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise RequestError(f"the messages cannot be read: {error}", hint=_HINT) from error
        except self._recipe.ConversionError as error:
            raise RequestError(f"the messages are refused: {_reason(error)}", hint=_HINT) from error
        try:
            ids: list[int] = self._encoding.encode(request.conversation)
        except RuntimeError as error:
            raise WeightsError(
                f"the tokenizer cannot write a conversation: {error}",
                hint="this checkpoint has no chat form; use generate",
            ) from error
        return ids


_HINT = 'messages look like [{"role": "user", "content": "Hello"}]'


def _switch(thinking: ThinkingEffort) -> dict[str, Any]:
    if thinking == "off":
        return {"thinking": {"type": "disabled"}}
    return {"thinking": {"type": "enabled"}, "reasoning_effort": thinking}


def _reason(error: Exception) -> str:
    try:
        return str(json.loads(getattr(error, "body", ""))["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return str(error)


def split_answer(tokenizer: Tokenizer, token_ids: Sequence[int]) -> tuple[str, str]:
    """Reasoning and answer of a completion that began to think.

    The border is the control token, never its spelling.

    Args:
        tokenizer: of the checkpoint.
        token_ids: of the completion.

    Returns:
        Both as text; the answer is empty while the reasoning has not ended.
    """
    border = tokenizer.control_id(THINK_END)
    ids = tuple(token_ids)
    if border is None or border not in ids:
        return tokenizer.decode(ids), ""
    place = ids.index(border)
    return tokenizer.decode(ids[:place]), tokenizer.decode(ids[place + 1 :]).lstrip("\n")
