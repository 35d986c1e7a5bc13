"""Which multipliers, primes and table offsets does each Engram layer hash with?

Nothing of this is stored in a checkpoint: everything follows from the config and from the size of
the compressed vocabulary, and must come out the same everywhere.

* A layer has one table; each (n-gram order, head) owns a sub-table of a prime number of rows, order
  major. Primes are never used twice, across all layers.
* A row is ``(t_0 m_0 xor t_1 m_1 xor ..) mod prime + offset`` with one odd multiplier a distance;
  the multipliers are small enough that a product of an id and a multiplier stays below 2^63.

Source: the n-gram hash of DeepSeek-V4.1-Flash's Engram.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch

from deepinfer_core.errors import ConfigError
from deepinfer_core.interfaces.transform import EngramHash
from deepinfer_core.model.engram_primes import hash_primes

__all__ = ["hash_constants", "hash_multipliers"]

_SEED = 10007  # times the layer id
_SMALLEST_ORDER = 2


def hash_constants(
    *,
    layer_ids: Sequence[int],
    table_rows: Sequence[int],
    table_size: int,
    heads: int,
    ngram_size: int,
    compressed_vocab_size: int,
) -> dict[int, EngramHash]:
    """Derive the hash of every Engram layer.

    Args:
        layer_ids: the layers that own a table, in the config's order (engram_layer_ids).
        table_rows: rows of each layer's table (engram_num_embeddings).
        table_size: smallest size of a sub-table (engram_vocab_size).
        heads: sub-tables an n-gram order (engram_n_heads).
        ngram_size: longest n-gram (engram_max_ngram_size).
        compressed_vocab_size: distinct ids of the compressed vocabulary.

    Returns:
        By layer id, host tensors of ``heads * (ngram_size - 1)`` columns.

    Raises:
        ConfigError: lists of unequal length or repeated layers, or the primes of a layer do not sum
            to its table's rows.
    """
    if len(layer_ids) != len(table_rows) or len(set(layer_ids)) != len(layer_ids):
        raise ConfigError(
            f"asked for Engram layers {list(layer_ids)}, found table rows {list(table_rows)}",
            hint="engram_num_embeddings needs one entry for each distinct layer id",
        )
    orders = ngram_size - _SMALLEST_ORDER + 1
    primes = hash_primes(layers=len(layer_ids), orders=orders, heads=heads, smallest=table_size)
    hashes = {}
    for layer, rows, layer_primes in zip(layer_ids, table_rows, primes, strict=True):
        if sum(layer_primes) != rows:
            raise ConfigError(
                f"asked for an Engram table of {rows} rows in layer {layer},"
                f" found sub-tables of {sum(layer_primes)} rows in all",
                hint="engram_num_embeddings does not fit engram_vocab_size and engram_n_heads",
            )
        order = torch.arange(_SMALLEST_ORDER, ngram_size + 1).repeat_interleave(heads)
        hashes[layer] = EngramHash(
            multiplier_N=hash_multipliers(layer, ngram_size, compressed_vocab_size),
            prime_C=torch.tensor(layer_primes, dtype=torch.int64),
            offset_C=torch.tensor([0, *accumulate(layer_primes[:-1])], dtype=torch.int64),
            order_C=order,
        )
    return hashes


def hash_multipliers(layer: int, ngram_size: int, compressed_vocab_size: int) -> torch.Tensor:
    """The odd multipliers of one layer, int64 [ngram_size], drawn by numpy's default generator."""
    bound = max(1, (np.iinfo(np.int64).max // compressed_vocab_size) // 2)
    drawn = np.random.default_rng(_SEED * layer).integers(0, bound, size=ngram_size, dtype=np.int64)
    return torch.from_numpy(drawn * 2 + 1)
