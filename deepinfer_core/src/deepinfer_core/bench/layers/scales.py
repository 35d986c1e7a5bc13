"""Which loads does ``bench layers`` run by default, at the true sizes and at small ones?

The small scale is for a machine without a device, and for tests: a model of the same architecture
in a few megabytes, and loads of a few tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from deepinfer_core.bench.layers.loads import Decoding
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.weights.sized_config import config_of_size

__all__ = ["SCALES", "Scale"]

_SMALL_BYTES = 8 << 20
_TRACED = 64
_FILL_TOKENS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What is measured.

    Attributes:
        config: the whole model.
        layers: how many are built; None: as many as fit.
        table_rows: about so many rows has an Engram table.
        prompts: tokens of each.
        chunk: most rows of a prompt's step.
        sequences, contexts, rows: decode steps of every combination.
        steps: decode steps of a loop.
        repeats: times that each prompt is timed.
        copy_bytes, side: of the vector and the matrices that the device's rates are measured with.
        profiled: requests of the engine whose steps are looked at, one of ``sequences``; None: see
            ``traced``.
    """

    config: ModelConfig
    layers: int | None = None
    table_rows: int
    prompts: tuple[int, ...]
    chunk: int
    sequences: tuple[int, ...]
    contexts: tuple[int, ...]
    rows: tuple[int, ...]
    steps: int
    repeats: int
    copy_bytes: int
    side: int
    profiled: int | None = None

    @property
    def decodings(self) -> list[Decoding]:
        """Every decode load: contexts within sequences within rows."""
        return [
            Decoding(sequences=sequences, context=context, rows=rows, steps=self.steps)
            for rows in self.rows
            for sequences in self.sequences
            for context in self.contexts
        ]

    @property
    def traced(self) -> int:
        """Requests of the engine whose steps are looked at; by default of decode loads, to 64."""
        if self.profiled is not None:
            return self.profiled
        return max([number for number in self.sequences if number <= _TRACED] or self.sequences[:1])

    @property
    def filled(self) -> int:
        """Tokens of the prompt whose blocks are copied to all others."""
        return min(_FILL_TOKENS, self.longest)

    @property
    def longest(self) -> int:
        """Tokens of the longest text."""
        return max(*self.prompts, *self.contexts)


def _true() -> Scale:
    source = files("deepinfer_core.model") / "data" / "deepseek_v41_flash.json"
    config = ModelConfig.from_file(Path(str(source)))
    return Scale(
        config=config,
        table_rows=4_000_000,
        prompts=(512, 4096, 32768),
        chunk=8192,
        sequences=(1, 8, 64, 256, 512),
        contexts=(1024, 8192, 32768, 131072),
        rows=(1, config.verified_rows),
        steps=8,
        repeats=2,
        copy_bytes=1 << 31,
        side=8192,
    )


def _small() -> Scale:
    config = config_of_size(_SMALL_BYTES)
    return Scale(
        config=config,
        table_rows=3000,
        prompts=(16, 48),
        chunk=32,
        sequences=(1, 3),
        contexts=(160,),
        rows=(1, config.verified_rows),
        steps=4,
        repeats=1,
        copy_bytes=1 << 22,
        side=128,
    )


SCALES = {"true": _true, "small": _small}
"""By name; made when they are asked for."""
