"""How does a text completion list the log-probabilities of its tokens?

The form of the public completion interface, four lists with one entry a token. JSON has neither
minus infinity nor bytes that are no text, and spellings are keys there: so both have a stand-in,
and no two tokens share a spelling.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepinfer_core.engine.outputs import TokenLogprob
    from deepinfer_core.engine.tokenizer import Tokenizer

__all__ = ["LogprobLists", "finite_logprob", "token_piece", "token_spelling"]

_LEAST_LOGPROB = -9999.0
"""Stands for minus infinity; public interfaces use the same."""


def token_piece(token: int, tokenizer: Tokenizer | None) -> bytes:
    """Bytes of a token, of a control token its spelling."""
    return b"" if tokenizer is None else tokenizer.piece(token, skip_control=False)


def token_spelling(token: int, tokenizer: Tokenizer | None) -> str:
    """The token as text; one that is no whole text as its bytes, one without text as its id."""
    piece = token_piece(token, tokenizer)
    if not piece:
        return f"token_id:{token}"
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


def finite_logprob(logprob: float) -> float:
    """What JSON can say of a log-probability."""
    return max(logprob, _LEAST_LOGPROB)


class LogprobLists:
    """Writes the lists of one text, all at once or part by part.

    Args:
        tokenizer: spells the tokens; None: they have no text.
        skip_control: the text that offsets point into has no control tokens.
    """

    def __init__(self, tokenizer: Tokenizer | None, *, skip_control: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_control = skip_control
        self._characters = 0
        """How many have begun."""

    def take(self, tokens: Iterable[tuple[int, TokenLogprob | None]]) -> dict[str, Any]:
        """The lists of the next tokens.

        Args:
            tokens: ids, each with what is known of it; None for the first one of a text.

        Returns:
            ``tokens``, ``token_logprobs``, ``top_logprobs``, in which the token itself is always
            one, and ``text_offset``: the character in which each token begins.
        """
        pairs = list(tokens)
        return {
            "tokens": [token_spelling(token, self._tokenizer) for token, _ in pairs],
            "token_logprobs": [entry and finite_logprob(entry.logprob) for _, entry in pairs],
            "top_logprobs": [entry and self._top(entry) for _, entry in pairs],
            "text_offset": [self._offset(token) for token, _ in pairs],
        }

    def _top(self, entry: TokenLogprob) -> dict[str, float]:
        return {
            token_spelling(token, self._tokenizer): finite_logprob(logprob)
            for token, logprob in (*entry.top, (entry.token_id, entry.logprob))
        }

    def _offset(self, token: int) -> int:
        if self._tokenizer is None:
            return 0
        piece = self._tokenizer.piece(token, skip_control=self._skip_control)
        begun = self._characters
        self._characters += sum(not _continues(byte) for byte in piece)
        return max(begun - 1, 0) if piece and _continues(piece[0]) else begun


def _continues(byte: int) -> bool:
    """Whether a byte of UTF-8 stands within a character."""
    return 0x80 <= byte < 0xC0
