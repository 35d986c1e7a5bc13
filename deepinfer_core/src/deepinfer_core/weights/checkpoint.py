"""How does one read a checkpoint tensor by tensor?

Opening reads the configuration and all headers and checks them; data are read when they are asked
for, straight into the memory that is returned, and are not kept. So the peak is what the caller
holds plus the tensor being read. Ask for each tensor once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from deepinfer_core.errors import WeightsError
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.numeric import QuantTensor
from deepinfer_core.weights.coverage import FoundWeight, cover
from deepinfer_core.weights.expert_stacks import read_stack
from deepinfer_core.weights.fingerprint import fingerprint
from deepinfer_core.weights.index import open_shards
from deepinfer_core.weights.manifest import Manifest, manifest_of
from deepinfer_core.weights.progress import LoadProgress, ProgressListener
from deepinfer_core.weights.reading import Advanced, map_tensor, read_tensor, scan
from deepinfer_core.weights.shard import Shard, TensorPlace

__all__ = ["Checkpoint", "open_checkpoint"]


@dataclass(kw_only=True)
class Checkpoint:
    """An opened checkpoint; names are those of the manifest, without a ``model.`` prefix.

    Attributes:
        folder: where it lies.
        config: from its ``config.json``.
        manifest: what it must hold.
        shards: its files.
        found: where each weight lies.
        progress: told about every piece of data read; the total is that of the whole checkpoint.
    """

    folder: Path
    config: ModelConfig
    manifest: Manifest
    shards: tuple[Shard, ...]
    found: dict[str, FoundWeight]
    progress: ProgressListener | None = None
    _bytes_done: int = 0

    @cached_property
    def nbytes(self) -> int:
        """Bytes of data of all weights, as stored."""
        return sum(weight.nbytes for weight in self.found.values())

    @cached_property
    def fingerprint(self) -> str:
        """Identity without the data; see ``weights.fingerprint``."""
        return fingerprint(self.folder, self.shards)

    def tensor(self, name: str) -> torch.Tensor:
        """Read one stored tensor as it is; scales and packed codes as uint8.

        Raises:
            WeightsError: no such tensor, unreadable data, NaN or infinite values.
        """
        if name in self.found:
            return self._read(self.found[name].data)
        weight = self.found.get(f"{name.removesuffix('.scale')}.weight")
        if weight is None or weight.scale is None or weight.spec.scale_name != name:
            raise self._absent(name)
        return self._read(weight.scale)

    def quant(self, name: str, rows: range | None = None) -> QuantTensor:
        """Read a weight with its scales, if it has some.

        Args:
            name: of the weight.
            rows: consecutive rows to read instead of all, for tables that are held in parts. Not
                for dense FP8 weights, whose scales belong to 32 rows.

        Raises:
            WeightsError: no such weight, no such rows, unreadable data, NaN or infinite values.
        """
        weight = self._weight(name)
        if rows is not None:
            is_inside = 0 <= rows.start <= rows.stop <= weight.spec.shape[0] and rows.step == 1
            if not is_inside or weight.format == "fp8_32x32":
                raise WeightsError(
                    f"asked for {rows} of {name}, found shape {list(weight.spec.shape)}"
                    f" in {weight.format}",
                    hint="ask for consecutive rows of a weight that has scales for each row",
                )
        scale = None if weight.scale is None else self._read(weight.scale, rows)
        return QuantTensor(data=self._read(weight.data, rows), scale=scale, format=weight.format)

    def table(self, name: str) -> QuantTensor:
        """A weight of which only a few rows are looked up at a time, mapped from its file.

        Raises:
            WeightsError: no such weight, unreadable data, or a value that is not finite.
        """
        weight = self._weight(name)
        scale = None if weight.scale is None else self._map(weight.scale)
        return QuantTensor(data=self._map(weight.data), scale=scale, format=weight.format)

    def experts(self, prefix: str) -> tuple[QuantTensor, QuantTensor]:
        """Read and stack the routed experts below a prefix, e.g. ``layers.0.ffn.experts``.

        Returns:
            Gate over up projections [E, 2 * I, D], and down projections [E, D, I], in values.

        Raises:
            WeightsError: no such experts, mixed formats, unreadable data, NaN or infinite values.
        """
        base = prefix.removesuffix(".")
        count = 0
        while f"{base}.{count}.w1.weight" in self.found:
            count += 1
        if not count:
            raise self._absent(f"{base}.0.w1.weight")
        pairs, downs = [], []
        for expert in range(count):
            gate, down, up = (self.found[f"{base}.{expert}.w{part}.weight"] for part in (1, 2, 3))
            pairs.append((gate, up))
            downs.append((down,))
        return read_stack(pairs, self._advance(base)), read_stack(downs, self._advance(base))

    def scan(self) -> None:
        """Read every byte of every weight once, in the order of the files, and keep nothing.

        Raises:
            WeightsError: unreadable data, NaN or infinite values.
        """
        places = [place for item in self.found.values() for place in (item.data, item.scale)]
        for place in sorted(filter(None, places), key=lambda item: (item.path, item.offset_bytes)):
            scan(place, advanced=self._advance(place.tensor.name))

    def _weight(self, name: str) -> FoundWeight:
        if name not in self.found:
            raise self._absent(name)
        return self.found[name]

    def _absent(self, name: str) -> WeightsError:
        return WeightsError(
            f"asked for {name}, found no such tensor in the manifest of {self.folder}",
            hint="deepinfer checkpoint inspect lists what there is",
        )

    def _read(self, place: TensorPlace, rows: range | None = None) -> torch.Tensor:
        return read_tensor(place, rows=rows, advanced=self._advance(place.tensor.name))

    def _map(self, place: TensorPlace) -> torch.Tensor:
        return map_tensor(place, advanced=self._advance(place.tensor.name))

    def _advance(self, name: str) -> Advanced | None:
        listener, total = self.progress, self.nbytes if self.progress else 0
        if listener is None:
            return None

        def advanced(count: int) -> None:
            self._bytes_done += count
            listener(
                LoadProgress(
                    phase="tensors", bytes_done=self._bytes_done, bytes_total=total, name=name
                )
            )

        return advanced


def open_checkpoint(path: Path | str, *, progress: ProgressListener | None = None) -> Checkpoint:
    """Check everything about a checkpoint but its data.

    Args:
        path: the folder with ``config.json`` and the safetensors files.
        progress: told about headers now and about data later; an exception it raises passes.

    Raises:
        ConfigError: the configuration is missing, damaged or unsupported.
        WeightsError: a file or a tensor is missing, damaged, unknown or of another shape or dtype.
    """
    folder = Path(path)
    config = ModelConfig.from_file(folder / "config.json")
    manifest = manifest_of(config)
    shards = open_shards(folder)
    if progress is not None:
        total = sum(shard.size_bytes for shard in shards)
        progress(
            LoadProgress(phase="headers", bytes_done=total, bytes_total=total, name=str(folder))
        )
    return Checkpoint(
        folder=folder,
        config=config,
        manifest=manifest,
        shards=shards,
        found=cover(manifest, shards),
        progress=progress,
    )
