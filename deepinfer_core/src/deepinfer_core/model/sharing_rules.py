"""Are the lists of source layers consistent, so that every layer finds the keys it borrows?

Layers that share selected indices must share index keys, and those must share compressed entries;
the decoder half has one source, its first layer.

Source: DeepSeek-V4.1-Flash config and the checks of its published engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from deepinfer_core.model.config_reading import require
from deepinfer_core.model.layer_plan import source_of

if TYPE_CHECKING:
    from deepinfer_core.model.config import TextConfig

__all__ = ["check_sharing"]

_T = "text_config."


def check_sharing(text: TextConfig) -> None:
    """Refuse source lists that contradict each other or the ratios.

    Raises:
        ConfigError: naming the first key that does not fit.
    """
    _check_layers(text)
    _check_sources(text)
    _check_pool(text)


def _check_layers(text: TextConfig) -> None:
    ratios, backbone = text.compress_ratios, text.num_hidden_layers
    total = backbone + text.num_nextn_predict_layers
    require(
        len(ratios) == total,
        f"{_T}compress_ratios",
        f"{len(ratios)} entries",
        f"{total} entries, num_hidden_layers + num_nextn_predict_layers",
    )
    require(
        set(ratios[:backbone]) <= {0, 1, 2},
        f"{_T}compress_ratios",
        list(ratios),
        "0, 1 or 2 in the backbone",
    )
    require(not any(ratios[backbone:]), f"{_T}compress_ratios", list(ratios), "0 in the drafter")
    require(
        1 in ratios, f"{_T}compress_ratios", list(ratios), "a layer of ratio 1 to start the decoder"
    )
    for key in (
        "kv_source_layer_ids",
        "index_source_layer_ids",
        "engram_layer_ids",
        "dspark_target_layer_ids",
        "index_k_source_layer_ids",
    ):
        ids = getattr(text, key) or ()
        require(
            all(0 <= layer < backbone for layer in ids) and list(ids) == sorted(set(ids)),
            _T + key,
            list(ids),
            f"ascending layer numbers below {backbone}",
        )


def _check_sources(text: TextConfig) -> None:
    ratios, boundary = text.compress_ratios, text.compress_ratios.index(1)
    sources, kv = text.kv_source_layer_ids, f"{_T}kv_source_layer_ids"
    decoder = [layer for layer in sources if layer >= boundary]
    require(
        decoder == [boundary],
        kv,
        list(sources),
        f"exactly one source in the decoder, its first layer {boundary}",
    )
    for key in ("kv_source_layer_ids", "index_source_layer_ids"):
        ids = getattr(text, key)
        require(all(ratios[layer] for layer in ids), _T + key, list(ids), "layers of ratio 1 or 2")
    require(
        set(text.index_key_layers) <= set(sources),
        f"{_T}index_k_source_layer_ids",
        list(text.index_key_layers),
        f"layers with a compressor, {list(sources)}",
    )
    compressed = [layer for layer in range(text.num_hidden_layers) if ratios[layer]]
    for layer in compressed:
        source = source_of(layer, sources)
        require(
            source is not None and ratios[source] == ratios[layer],
            kv,
            list(sources),
            f"a source of ratio {ratios[layer]} at or before layer {layer}",
        )
    _check_containment(compressed, "index_k_source_layer_ids", text.index_key_layers, sources)
    _check_containment(
        compressed, "index_source_layer_ids", text.index_source_layer_ids, text.index_key_layers
    )


def _check_containment(
    layers: Sequence[int], key: str, fine: Sequence[int], coarse: Sequence[int]
) -> None:
    """Layers that share a source of ``fine`` must share one of ``coarse``."""
    first: dict[int | None, int | None] = {}
    for layer in layers:
        own = source_of(layer, fine)
        require(own is not None, _T + key, list(fine), f"a source at or before layer {layer}")
        shared = first.setdefault(own, source_of(layer, coarse))
        require(
            shared == source_of(layer, coarse),
            _T + key,
            list(fine),
            f"a source of its own where the keys change, at layer {layer}",
        )


def _check_pool(text: TextConfig) -> None:
    blocks, size = text.candidate_topk_blocks, text.candidate_block_size
    require(blocks % 8 == 0, f"{_T}candidate_topk_blocks", blocks, "a multiple of 8")
    require(
        blocks * size >= text.index_topk,
        f"{_T}candidate_topk_blocks",
        blocks,
        f"at least index_topk / candidate_block_size = {text.index_topk} / {size}",
    )
    source, sources = text.candidate_source_layer_id, text.index_source_layer_ids
    require(source in sources, f"{_T}candidate_source_layer_id", source, f"one of {list(sources)}")
    fed = [layer for layer in sources if layer > source]
    ratio = text.compress_ratios[source]
    require(
        all(text.compress_ratios[layer] == ratio for layer in fed),
        f"{_T}candidate_source_layer_id",
        source,
        f"a layer whose ratio {ratio} all later index sources {fed} share",
    )
