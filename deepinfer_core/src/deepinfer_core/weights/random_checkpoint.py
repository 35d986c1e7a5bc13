"""How does one make a checkpoint in the true formats without any training?

For load tests, memory figures and plumbing: any configuration or any size, any number of files, the
same bytes for the same seed. The folder also gets a toy ``tokenizer.json``, so that text can go in
and come out: words ``w0``, ``w1``, ... whose last few differ from the first only in case, because
the Engram memory needs a vocabulary that folds to the configured size.
"""

from __future__ import annotations

import json
from pathlib import Path

from deepinfer_core.errors import ConfigError
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.weights.manifest import manifest_of
from deepinfer_core.weights.progress import ProgressListener
from deepinfer_core.weights.random_values import random_pieces
from deepinfer_core.weights.writing import prepare_folder, write_checkpoint

__all__ = ["make_random_checkpoint"]


def make_random_checkpoint(
    folder: Path,
    config: ModelConfig,
    *,
    shards: int = 1,
    seed: int = 0,
    progress: ProgressListener | None = None,
) -> None:
    """Write a random checkpoint; memory stays at a few MiB whatever its size.

    Args:
        folder: new, or empty.
        config: decides names, shapes and formats.
        shards: number of files.
        seed: of all weights; 0 or more.
        progress: told after each tensor.

    Raises:
        ConfigError: the folder cannot be used, or the seed or the number of shards is out of range.
        WeightsError: writing failed.
    """
    if seed < 0:
        raise ConfigError(f"asked for the seed {seed}, found that seeds start at 0")
    manifest = manifest_of(config)
    prepare_folder(folder, manifest.nbytes)
    weights = list(manifest.weights.values())
    write_checkpoint(folder, config, weights, random_pieces(seed), shards=shards, progress=progress)
    text = json.dumps(_toy_tokenizer(config), ensure_ascii=False)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")


def _toy_tokenizer(config: ModelConfig) -> dict[str, object]:
    size = config.text_config.vocab_size
    distinct = config.text_config.engram_compressed_vocab_size or size
    words = [f"w{number}" for number in range(distinct)]
    words += [f"W{number}" for number in range(size - distinct)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: number for number, word in enumerate(words)},
            "unk_token": "w0",
        },
    }
