"""Which layers of a model are built where not all of them fit?

A *kind* of layer is what it owns and borrows: two layers of one kind do the same work. A shallow
model has at least one layer of each kind, and as far as that allows each kind has the share that it
has in the whole model. The layers keep their order, so that every one finds the keys it borrows.
The drafter and the vision tower are left out, and Engram tables are shortened: they would lie in
host memory and nothing of their size but cache misses shows in a step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from deepinfer_core.bench.layers.work import Storage
from deepinfer_core.errors import ConfigError
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.model.engram_primes import hash_primes
from deepinfer_core.model.layer_plan import LayerPlan
from deepinfer_core.weights.manifest import WeightSpec, manifest_of

__all__ = ["Kind", "kind_of", "kinds_of", "layer_bytes", "pick_layers", "shallow_config"]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Kind:
    """What tells the work of two layers apart; the fields are those of ``LayerPlan``."""

    ratio: int
    has_compressor: bool
    has_indexer: bool
    has_index_keys: bool
    has_engram: bool
    builds_pool: bool
    uses_pool: bool

    def __str__(self) -> str:
        """In words, e.g. ``pairs, owner, engram``."""
        words = [("window", "tokens", "pairs")[self.ratio]]
        words += ["owner"] * self.has_compressor
        words += ["selector"] * (self.has_indexer and not self.has_compressor)
        words += ["engram"] * self.has_engram
        return ", ".join(words)


def kind_of(plan: LayerPlan) -> Kind:
    """The kind of a layer."""
    return Kind(**{name: getattr(plan, name) for name in Kind.__dataclass_fields__})


def kinds_of(config: ModelConfig) -> Counter[Kind]:
    """How many layers of each kind the backbone has, in the order of their first ones."""
    return Counter(kind_of(plan) for plan in config.backbone_layers)


def pick_layers(config: ModelConfig, count: int) -> tuple[int, ...]:
    """Choose layers of the backbone.

    Each further layer goes to the kind that is furthest below its share, the earliest kind first;
    of a kind the first layers are taken.

    Args:
        config: the whole model.
        count: how many, at most those there are.

    Returns:
        Their numbers, ascending.

    Raises:
        ConfigError: fewer than there are kinds, or more than there are layers.
    """
    totals = kinds_of(config)
    layers = config.text_config.num_hidden_layers
    if not len(totals) <= count <= layers:
        raise ConfigError(
            f"asked for {count} of {layers} layers, found {len(totals)} kinds of layers",
            hint=f"ask for {len(totals)} to {layers} layers",
        )
    taken = dict.fromkeys(totals, 1)
    while sum(taken.values()) < count:
        open_kinds = [kind for kind in totals if taken[kind] < totals[kind]]
        missing = {kind: totals[kind] * count / layers - taken[kind] for kind in open_kinds}
        taken[max(open_kinds, key=missing.__getitem__)] += 1
    picked = []
    for plan in config.backbone_layers:
        kind = kind_of(plan)
        if taken[kind]:
            taken[kind] -= 1
            picked.append(plan.index)
    return tuple(picked)


def shallow_config(
    config: ModelConfig, layers: Sequence[int], *, table_rows: int | None
) -> ModelConfig:
    """The configuration of a model of these layers alone.

    Args:
        config: the whole model.
        layers: ascending, with one of each kind.
        table_rows: about so many rows an Engram table gets; None leaves the tables as they are.
    """
    text = config.text_config
    place = {layer: number for number, layer in enumerate(layers)}

    def placed(ids: Sequence[int]) -> tuple[int, ...]:
        return tuple(place[layer] for layer in ids if layer in place)

    index_keys = text.index_k_source_layer_ids
    engram = placed(text.engram_layer_ids)
    smallest, rows = _tables(config, layers, table_rows)
    shallow = replace(
        text,
        num_hidden_layers=len(layers),
        compress_ratios=tuple(text.compress_ratios[layer] for layer in layers),
        kv_source_layer_ids=placed(text.kv_source_layer_ids),
        index_source_layer_ids=placed(text.index_source_layer_ids),
        index_k_source_layer_ids=None if index_keys is None else placed(index_keys),
        candidate_source_layer_id=place[text.candidate_source_layer_id],
        engram_layer_ids=engram,
        engram_vocab_size=smallest,
        engram_num_embeddings=rows,
        num_nextn_predict_layers=0,
        dspark_target_layer_ids=(),
    )
    return replace(config, text_config=shallow, vision_config=None)


def layer_bytes(config: ModelConfig, storage: Storage) -> tuple[float, float]:
    """Memory of the device that weights take, as the components keep them.

    Args:
        config: of any depth; its drafter and vision tower are left out.
        storage: bytes of a value.

    Returns:
        Bytes of the largest layer, and of everything outside the layers.
    """
    layers = dict.fromkeys((plan.prefix for plan in config.backbone_layers), 0.0)
    outside = 0.0
    for spec in manifest_of(config).weights.values():
        size = prod(spec.shape) * _value_bytes(spec, storage)
        prefix = ".".join(spec.name.split(".")[:2]) + "."
        if prefix in layers:
            layers[prefix] += size
        elif spec.group == "global":
            outside += size
    return max(layers.values()), outside


def _value_bytes(spec: WeightSpec, storage: Storage) -> float:
    if spec.group == "experts":
        return storage.expert
    if spec.name.endswith("engram.embed.weight"):
        return 0.0  # on the host
    return {"fp8_32x32": storage.dense, "bfloat16": storage.plain}.get(spec.format, 4.0)


def _tables(
    config: ModelConfig, layers: Sequence[int], table_rows: int | None
) -> tuple[int, tuple[int, ...]]:
    """Smallest sub-table, and the rows of each table that is left."""
    text = config.text_config
    kept = [layer for layer in text.engram_layer_ids if layer in layers]
    if table_rows is None and len(kept) == len(text.engram_layer_ids):
        return text.engram_vocab_size, text.engram_num_embeddings
    if not kept:
        return text.engram_vocab_size, ()
    smallest = text.engram_vocab_size
    if table_rows is not None:
        smallest = min(smallest, max(2, table_rows // text.engram_columns))
    primes = hash_primes(
        layers=len(kept),
        orders=text.engram_max_ngram_size - 1,
        heads=text.engram_n_heads,
        smallest=smallest,
    )
    return smallest, tuple(sum(sizes) for sizes in primes)
