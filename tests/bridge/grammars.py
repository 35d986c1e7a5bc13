"""Which token sequences does a grammar of a request let through? Asked of a grammar component."""

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from deepinfer_core.engine.grammar_request import GrammarRequest
from deepinfer_core.interfaces.grammar import GrammarText, GrammarVocabulary
from deepinfer_core.testing.byte_tokenizer import CONTROL_TOKENS
from deepinfer_grammar.engines.llguidance_component import LlguidanceGrammar
from scripted import EOS

COMPONENT = LlguidanceGrammar()
VOCABULARY = GrammarVocabulary(
    pieces=(*[b""] * len(CONTROL_TOKENS), *[bytes([byte]) for byte in range(256)]),
    end_ids=(EOS,),
    controls={name: token for token, name in enumerate(CONTROL_TOKENS) if token != EOS},
)


@lru_cache(maxsize=64)
def compiled(text: GrammarText) -> bytes:
    return COMPONENT.compile(text, VOCABULARY)


def allows(request: GrammarRequest, token_ids: Iterable[int]) -> bool:
    """Whether tokens are let through under the masks, from the first one on, and may then end."""
    matcher = COMPONENT.open(compiled(request.text), VOCABULARY).matcher()
    if not matcher.replay(request.prefix_ids):
        return False
    mask_RW = np.zeros((1, VOCABULARY.words), dtype=np.int32)
    for token in (*token_ids, EOS):
        matcher.fill_mask(mask_RW, 0)
        if not int(mask_RW[0, token // 32]) >> (token % 32) & 1:
            return False
        if not matcher.accept(token):
            return False
    return True
