"""Which tokens may a constrained text consist of?

Ordinary tokens only: an added token, control token or not, keeps its id out of every mask, so that
text can never be taken for markup. A structural tag may name added tokens.
"""

from __future__ import annotations

from collections.abc import Iterable

from deepinfer_core.engine.tokenizer import Tokenizer
from deepinfer_core.interfaces.grammar import GrammarVocabulary

__all__ = ["grammar_vocabulary"]


def grammar_vocabulary(
    tokenizer: Tokenizer, *, end_ids: Iterable[int], size: int | None = None
) -> GrammarVocabulary:
    """The vocabulary of a tokenizer as grammars see it.

    Args:
        tokenizer: of the checkpoint.
        end_ids: tokens that end a text.
        size: token ids of the model; ids beyond the tokenizer's have no text. None: the
            tokenizer's.
    """
    pieces, added = tokenizer.pieces, tokenizer.added
    control, ends = set(added.values()), tuple(sorted(set(end_ids)))
    count = max(size or 0, max(pieces, default=-1) + 1)
    return GrammarVocabulary(
        pieces=tuple(b"" if token in control else pieces.get(token, b"") for token in range(count)),
        end_ids=ends,
        controls={name: token for name, token in added.items() if token not in ends},
    )
