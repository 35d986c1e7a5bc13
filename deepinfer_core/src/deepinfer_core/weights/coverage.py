"""Does a checkpoint hold every weight of the manifest, once, in a form that can be read?

A weight may be stored in its declared format or, in small checkpoints for tests, as a plain BF16
or F32 tensor without scales. Experts declared as FP4 may be FP8: that re-encoding loses nothing.
Each stored name may carry the prefix ``model.``. Nothing else is tolerated: a missing tensor and
an unknown one are both errors, before any data are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from deepinfer_core.errors import WeightsError
from deepinfer_core.weights.manifest import Manifest, StoredTensor, WeightSpec
from deepinfer_core.weights.shard import Shard, TensorPlace

__all__ = ["FoundWeight", "cover"]

_PREFIX = "model."
_PLAIN = {"BF16": "bfloat16", "F32": "float32"}
# Writers disagree on how to label bytes that safetensors has no name for.
_SAME_BYTES = {"U8": ("I8", "F8_E8M0")}
# The drafter shares the backbone's embedding and head; copies of them are not read.
_IGNORED = re.compile(r"mtp\.\d+\.(embed|head)\.weight")
_UNFOLDED_NORM = re.compile(r"hc_\w*norm")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundWeight:
    """A weight and the place of its data.

    Attributes:
        spec: what the manifest asked for.
        format: what it is stored in; may be plain although the manifest asked for a quantised one.
        data: place of the values.
        scale: place of the scales, None if plain.
    """

    spec: WeightSpec
    format: str
    data: TensorPlace
    scale: TensorPlace | None

    @property
    def nbytes(self) -> int:
        """Bytes to read."""
        return self.data.tensor.nbytes + (self.scale.tensor.nbytes if self.scale else 0)


def cover(manifest: Manifest, shards: Iterable[Shard]) -> dict[str, FoundWeight]:
    """Find each weight of the manifest in the files.

    Returns:
        By weight name, in the order of the manifest.

    Raises:
        WeightsError: a tensor is missing, unknown, stored twice or of another shape or dtype.
    """
    places = _by_canonical_name(shards)
    found = {name: _find(weight, places) for name, weight in manifest.weights.items()}
    used = {item.data.tensor.name for item in found.values()}
    used |= {item.scale.tensor.name for item in found.values() if item.scale}
    for name, place in places.items():
        if place.tensor.name not in used and not _IGNORED.fullmatch(name):
            raise _unknown(name, place, manifest)
    return found


def _by_canonical_name(shards: Iterable[Shard]) -> dict[str, TensorPlace]:
    places: dict[str, TensorPlace] = {}
    for shard in shards:
        for stored_name, place in shard.places.items():
            name = stored_name.removeprefix(_PREFIX)
            if name in places:
                raise WeightsError(
                    f"asked for one tensor {name}, found it in {places[name].path.name}"
                    f" and in {shard.path.name}",
                    hint="remove one of the two",
                )
            places[name] = place
    return places


def _find(weight: WeightSpec, places: Mapping[str, TensorPlace]) -> FoundWeight:
    data = _take(weight.stored()[0], places)
    form = _stored_format(weight, data)
    expected = weight.stored(form)
    _check_shape(expected[0], data)
    if len(expected) == 1:
        return FoundWeight(spec=weight, format=form, data=data, scale=None)
    scale = _take(expected[1], places)
    _check_dtype(expected[1], scale)
    _check_shape(expected[1], scale)
    return FoundWeight(spec=weight, format=form, data=data, scale=scale)


def _take(tensor: StoredTensor, places: Mapping[str, TensorPlace]) -> TensorPlace:
    if tensor.name not in places:
        raise WeightsError(
            f"asked for the tensor {tensor.name} ({tensor.dtype} {list(tensor.shape)}),"
            f" found {len(places)} tensors without it",
            hint="the checkpoint is incomplete, or its config.json describes another model",
        )
    return places[tensor.name]


def _stored_format(weight: WeightSpec, data: TensorPlace) -> str:
    dtype = data.tensor.dtype
    if dtype in _PLAIN:
        return _PLAIN[dtype]
    if weight.group == "experts" and weight.format == "mxfp4" and dtype == "F8_E4M3":
        return "fp8_32x32"
    _check_dtype(weight.stored()[0], data)
    return weight.format


def _check_dtype(expected: StoredTensor, place: TensorPlace) -> None:
    found = place.tensor.dtype
    if found != expected.dtype and expected.dtype not in _SAME_BYTES.get(found, ()):
        raise WeightsError(
            f"asked for {expected.name} as {expected.dtype}, found {found} in {place.path.name}",
            hint="convert the tensor; plain weights may be BF16 or F32",
        )


def _check_shape(expected: StoredTensor, place: TensorPlace) -> None:
    if place.tensor.shape != expected.shape:
        raise WeightsError(
            f"asked for {expected.name} of shape {list(expected.shape)},"
            f" found {list(place.tensor.shape)} in {place.path.name}",
            hint="the config.json describes another model",
        )


def _unknown(name: str, place: TensorPlace, manifest: Manifest) -> WeightsError:
    hint = "the config.json describes another model"
    if _UNFOLDED_NORM.search(name):
        hint = "fold the norm's weight into hc_*_fn first"
    elif "hc_head" in name:
        hint = "this is the unshifted form of the residual streams, which is not implemented"
    elif name.endswith(".scale") and name.removesuffix("scale") + "weight" in manifest.weights:
        hint = "its weight is stored plain, so there must be no scales"
    return WeightsError(
        f"asked for the tensors of the manifest only, found {place.tensor.name}"
        f" in {place.path.name} as well",
        hint=hint,
    )
