"""Which tokenizer needs no file: a token for each byte, and the control tokens of the family?"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from deepinfer_core.engine.byte_letters import BYTE_LETTERS
from deepinfer_core.interfaces.async_engine import EngineFacts

__all__ = [
    "CONTROL_TOKENS",
    "FIRST_BYTE",
    "VOCABULARY",
    "byte_facts",
    "byte_tokenizer_source",
    "byte_tokens",
]

CONTROL_TOKENS = (
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<｜▁pad▁｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<｜System｜>",
    "<think>",
    "</think>",
    "｜DSML｜",
)
"""At ids 0 and following; byte b has id ``FIRST_BYTE`` + b."""

FIRST_BYTE = len(CONTROL_TOKENS)
"""Id of byte 0."""

VOCABULARY = FIRST_BYTE + 256


def byte_tokens(text: str) -> tuple[int, ...]:
    """Token ids of a text; the spelling of a control token is text like any other."""
    return tuple([FIRST_BYTE + byte for byte in text.encode()])


def byte_facts(**others: Any) -> EngineFacts:
    """Facts of an engine with this tokenizer.

    Args:
        others: of ``EngineFacts``, where the usual ones do not hold.
    """
    usual: dict[str, Any] = {
        "model": "fake",
        "tokenizer_json": byte_tokenizer_source(),
        "max_model_len": 8192,
        "vocabulary": VOCABULARY,
        "grammar_kinds": (),
        "components": {},
        "report": {},
    }
    return EngineFacts(**{**usual, **others})


@cache
def byte_tokenizer_source() -> str:
    """A ``tokenizer.json`` with one token for each byte and the control tokens of the family."""
    letters = {byte: letter for letter, byte in BYTE_LETTERS.items()}
    # Added tokens keep their ids only if the model's vocabulary has them too.
    vocabulary = {text: number for number, text in enumerate(CONTROL_TOKENS)}
    vocabulary |= {letters[byte]: FIRST_BYTE + byte for byte in range(256)}
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    added = [
        {
            "id": number,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for number, text in enumerate(CONTROL_TOKENS)
    ]
    model: dict[str, object] = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": vocabulary,
        "merges": [],
    }
    spec = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": model,
    }
    return json.dumps(spec, ensure_ascii=False)
