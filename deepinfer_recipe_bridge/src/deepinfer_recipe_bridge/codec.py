"""Which prompts, bytes and control tokens belong to a tokenizer?

Everything is read from ``tokenizer.json``: no id is assumed. Every added token counts as a control
token; of these an answer may hold the end, ``</think>`` and the marker of tool calls, and the last
two only where they mean something.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import deepseek_recipe as recipe
from deepinfer_core.errors import RequestError
from deepinfer_core.interfaces.async_engine import EngineFacts

from deepinfer_recipe_bridge.plain_tokens import plain_tokens

__all__ = ["Codec", "codec_of"]

_NEEDED = (
    recipe.SpecialToken.Bos,
    recipe.SpecialToken.Eos,
    recipe.SpecialToken.ThinkingStart,
    recipe.SpecialToken.ThinkingEnd,
    recipe.SpecialToken.System,
    recipe.SpecialToken.User,
    recipe.SpecialToken.Assistant,
    recipe.SpecialToken.Dsml,
)
_HINT = "this model has no chat form; use /v1/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """What one tokenizer knows.

    Attributes:
        tokenizer: turns tokens of answers into text.
        encoding: writes prompts.
        think_end_id, dsml_id: control tokens with a meaning inside an answer.
        think_end, dsml: their spellings.
        silent_ids: tokens that are not passed on: all control tokens but these two. One that the
            engine draws nevertheless ended the answer.
        plain: see ``plain_tokens``.
        banned_ids: tokens that no answer may hold, ascending; the two above are not among them.
    """

    tokenizer: recipe.Tokenizer
    encoding: recipe.DeepseekV41Encoding
    think_end_id: int
    dsml_id: int
    think_end: str
    dsml: str
    silent_ids: frozenset[int]
    plain: Mapping[int, bytes]
    banned_ids: tuple[int, ...]

    def encode(self, conversation: recipe.Conversation) -> tuple[int, ...]:
        """Token ids of a prompt: control tokens for the frame, ordinary ones for all text.

        Raises:
            RequestError: the tokenizer lacks a control token that this conversation needs.
        """
        try:
            return tuple(self.encoding.encode(conversation))
        except RuntimeError as error:
            raise RequestError(
                "this conversation needs a control token that the tokenizer lacks", hint=_HINT
            ) from error

    def characters(self, conversation: recipe.Conversation) -> int:
        """Length of a prompt as text, which takes a hundredth of the time of its tokens."""
        return len(self.encoding.render_conversation(conversation).prompt)

    def bans(self, *, thinks: bool, calls: bool) -> Sequence[tuple[int]]:
        """One sequence for each token that an answer must not hold.

        Args:
            thinks: it begins with reasoning, which ends with ``</think>``.
            calls: it may call tools.
        """
        more = [] if thinks else [self.think_end_id]
        more += [] if calls else [self.dsml_id]
        return [(token,) for token in (*self.banned_ids, *more)]


def codec_of(facts: EngineFacts) -> Codec:
    """The codec of a loaded engine; it is made once.

    Raises:
        RequestError: its tokenizer is missing, or lacks control tokens of this model family.
    """
    if facts.tokenizer_json is None:
        raise RequestError("the model has no tokenizer", hint=_HINT)
    return _codec(facts.tokenizer_json, facts.vocabulary)


@lru_cache(maxsize=2)
def _codec(source: str, vocabulary: int) -> Codec:
    spec = json.loads(source)
    added = {item["content"]: item["id"] for item in spec.get("added_tokens", [])}
    missing = [token.default_str() for token in _NEEDED if token.default_str() not in added]
    if missing:
        raise RequestError(f"the tokenizer has no {', '.join(missing)}", hint=_HINT)
    think_end = recipe.SpecialToken.ThinkingEnd.default_str()
    dsml = recipe.SpecialToken.Dsml.default_str()
    kept = {added[think_end], added[dsml]}
    end = added[recipe.SpecialToken.Eos.default_str()]
    unknown = set(range(vocabulary)) - set(spec["model"]["vocab"].values())
    silent = (set(added.values()) | unknown) - kept
    tokenizer = recipe.Tokenizer.from_str(source)
    return Codec(
        tokenizer=tokenizer,
        encoding=recipe.DeepseekV41Encoding().with_tokenizer(tokenizer),
        think_end_id=added[think_end],
        dsml_id=added[dsml],
        think_end=think_end,
        dsml=dsml,
        silent_ids=frozenset(silent),
        plain=plain_tokens(spec, silent | kept),
        banned_ids=tuple(sorted(silent - {end})),
    )
