"""Can any token begin a text of a grammar?"""

from __future__ import annotations

from deepinfer_core.interfaces.grammar import GrammarMatcher, GrammarVocabulary

from deepinfer_grammar.errors import GrammarFault

__all__ = ["check_beginning"]


def check_beginning(matcher: GrammarMatcher, vocabulary: GrammarVocabulary) -> None:
    """Look at the first mask.

    Raises:
        GrammarFault: it is empty.
    """
    import numpy as np

    mask_RW = np.zeros((1, vocabulary.words), dtype=np.int32)
    matcher.fill_mask(mask_RW, 0)
    if not mask_RW.any():
        raise GrammarFault(
            "no token of the vocabulary can begin a text of the grammar",
            hint="the grammar's first characters are in no token",
        )
