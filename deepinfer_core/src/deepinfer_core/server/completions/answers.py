"""What do the answers to a text completion look like?

The form of the public completion interface, whole or as events. One ``ChoiceText`` keeps what is
known of one choice; it gives the choice of a whole answer, or the parts of it as they come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from deepinfer_core.engine.legacy_logprobs import LogprobLists
from deepinfer_core.interfaces.async_engine import Finished, Item, Started, Tokens

if TYPE_CHECKING:
    from deepinfer_core.engine.outputs import TokenLogprob
    from deepinfer_core.engine.tokenizer import Tokenizer
    from deepinfer_core.interfaces.protocol import CallNotes

__all__ = ["ChoiceText", "usage_of"]


class ChoiceText:
    """One choice of an answer.

    Args:
        index: place among the choices.
        echo: text of the prompt, if it is to be shown; None: it is not.
        prompt_ids: tokens of the prompt.
        is_scored: log-probabilities are wanted.
        is_scored_only: what is drawn is not shown.
        tokenizer: spells tokens.

    Attributes:
        finished: how it ended; None: it goes on.
    """

    def __init__(
        self,
        index: int,
        *,
        echo: str | None,
        prompt_ids: Sequence[int],
        is_scored: bool,
        is_scored_only: bool,
        tokenizer: Tokenizer,
    ) -> None:
        self.finished: Finished | None = None
        self._index = index
        self._echo = echo
        self._prompt_ids = prompt_ids
        self._lists = LogprobLists(tokenizer) if is_scored else None
        self._is_held = echo is not None and is_scored
        self._is_scored_only = is_scored_only
        self._text: list[str] = []
        self._scored: list[tuple[int, TokenLogprob | None]] = []

    def take(self, item: Item) -> None:
        """Remember what came."""
        if isinstance(item, Tokens) and not self._is_scored_only:
            self._text.append(item.text)
            if item.logprobs:
                self._scored += zip(item.token_ids, item.logprobs, strict=True)
        elif isinstance(item, Started) and self._echo is not None and self._lists is None:
            self._text.append(self._echo)
        elif isinstance(item, Finished):
            self.finished = item
            if self._echo is not None and self._lists is not None:
                # They are known at the end only, and stand before the rest.
                known = item.prompt_logprobs or (None,) * len(self._prompt_ids)
                self._text.insert(0, self._echo)
                self._scored[:0] = zip(self._prompt_ids, known, strict=True)

    def part(self) -> dict[str, Any] | None:
        """What came since the last time; None: nothing that is shown.

        A choice that begins with a scored prompt comes as a whole.
        """
        if self.finished is None and self._is_held:
            return None
        text, scored = "".join(self._text), self._scored
        if self.finished is None and not (text or scored):
            return None
        self._text, self._scored = [], []
        reason = None if self.finished is None else self.finished.reason
        if self._is_scored_only and reason == "stop":
            reason = "length"  # what was drawn beyond the limit happened to be an end
        return {
            "index": self._index,
            "text": text,
            "logprobs": None if self._lists is None else self._lists.take(scored),
            "finish_reason": reason,
        }

    @property
    def is_text_only(self) -> bool:
        """Whether all that is shown until it ends is text, as it comes."""
        return self._lists is None and not self._is_scored_only

    @property
    def completion_tokens(self) -> int:
        """Tokens that are shown, the one that ended the choice included."""
        if self.finished is None or self._is_scored_only:
            return 0
        return self.finished.completion_tokens


def usage_of(choices: Iterable[ChoiceText], samples: int, notes: CallNotes) -> dict[str, Any]:
    """Usage of a whole call; a prompt counts once, however many choices it has.

    Args:
        choices: all of them, finished, those of one prompt side by side.
        samples: choices of each prompt.
        notes: get the same figures.
    """
    found = list(choices)
    ends = [choice.finished for choice in found[::samples] if choice.finished is not None]
    prompt = sum(end.prompt_tokens for end in ends)
    cached = sum(end.cached_tokens for end in ends)
    completion = sum(choice.completion_tokens for choice in found)
    notes.prompt_tokens, notes.cached_tokens, notes.completion_tokens = prompt, cached, completion
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "prompt_cache_hit_tokens": cached,
        "prompt_cache_miss_tokens": prompt - cached,
    }
