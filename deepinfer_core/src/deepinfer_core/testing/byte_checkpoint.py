"""Which checkpoint do engine tests load? A random one of every feature that takes any text.

Its tokenizer has one token a byte and the control tokens of the family, so text goes in and comes
out and a conversation can be written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from deepinfer_core.model.config import ModelConfig
from deepinfer_core.model.engram_vocabulary import compress_vocabulary
from deepinfer_core.testing.byte_tokenizer import byte_tokenizer_source
from deepinfer_core.testing.tiny import tiny_test_config
from deepinfer_core.weights.random_checkpoint import make_random_checkpoint

__all__ = ["make_byte_checkpoint"]

_SIX_LAYERS: dict[str, Any] = {
    "num_hidden_layers": 6,
    "compress_ratios": [0, 0, 2, 2, 1, 1, 0, 0, 0],
    "kv_source_layer_ids": [2, 4],
    "index_source_layer_ids": [2, 4, 5],
    "candidate_source_layer_id": 4,
    "engram_layer_ids": [1],
    "engram_num_embeddings": [1618],
    "dspark_target_layer_ids": [3, 4, 5],
}
"""Half the layers of the usual small model: two of each kind, so that each part is there."""

_VOCABULARY = 288
"""The 265 tokens of the tokenizer, rounded up; the other ids have no text."""


def make_byte_checkpoint(folder: Path, *, seed: int = 0, **text_overrides: Any) -> ModelConfig:
    """Write the checkpoint.

    Args:
        folder: new, or empty.
        seed: of the weights.
        text_overrides: values for keys of ``text_config``.

    Raises:
        ConfigError: the overrides do not fit, or the folder cannot be used.
    """
    source = byte_tokenizer_source()
    text: dict[str, Any] = {
        "vocab_size": _VOCABULARY,
        "dspark_noise_token_id": _VOCABULARY - 1,
        "engram_compressed_vocab_size": compress_vocabulary(Tokenizer.from_str(source)).size,
        **_SIX_LAYERS,
    }
    config = tiny_test_config(**(text | text_overrides))
    make_random_checkpoint(folder, config, seed=seed)
    (folder / "tokenizer.json").write_text(source, encoding="utf-8")
    return config
