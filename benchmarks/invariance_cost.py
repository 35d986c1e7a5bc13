"""What do dense products cost whose bits do not depend on the batch?

The layers of ``deepinfer bench layers``, measured twice in one process: with the kernels of
``nvidia.tilelang`` in every slot, and with torch's library (cuBLAS) in the slot ``gemm.dense``,
which picks another order of additions for another number of rows. Everything else is the same,
rounding of rows too. No other slot has a library that computes the same.

    python benchmarks/invariance_cost.py --layers 8 --out FILE.json
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from deepinfer_core.bench.figures import Figure, Reference
from deepinfer_core.bench.layers.loads import Prompt
from deepinfer_core.bench.layers.opening import storage_of
from deepinfer_core.bench.layers.rates import measured_rates
from deepinfer_core.bench.layers.rehearsal import keep_load_kernels
from deepinfer_core.bench.layers.room import plan_room
from deepinfer_core.bench.layers.scales import SCALES, Scale
from deepinfer_core.bench.layers.survey import Measured, Survey
from deepinfer_core.bench.stamp import Stamp, stamp_of
from deepinfer_core.cli.output import complain
from deepinfer_core.config import load_settings, resolve_components
from deepinfer_core.engine.model_folder import model_needs
from deepinfer_core.engine.model_loading import model_parts
from deepinfer_core.errors import DeepInferError
from deepinfer_core.interfaces.component import Plan, Properties
from deepinfer_core.interfaces.gemm import DenseGemm, DenseSpec, PreparedWeight
from deepinfer_core.interfaces.transform import Transform
from deepinfer_core.numeric import QuantTensor, number_format
from deepinfer_core.plugin import load
from deepinfer_core.telemetry.progress import ProgressStream

_BF16 = torch.bfloat16


@dataclass(frozen=True, kw_only=True)
class LibraryPlan(Plan):
    """A spec, and what the component under test would do with it."""

    spec: DenseSpec
    own: Plan


class LibraryDense(DenseGemm):
    """Products of bf16 rows by torch's library.

    Args:
        own: the component whose place it takes; takes over weights, and multiplies what is not
            bf16.
        transform: rounds rows, by the kernel that ``own`` uses.
    """

    def __init__(self, own: DenseGemm, transform: Transform) -> None:
        self._own, self._transform = own, transform

    @property
    def properties(self) -> Properties:
        """Not batch invariant: that is the question."""
        return Properties(batch_invariant="never", deterministic="always", graph_safe="always")

    def prepare(self, weight: QuantTensor) -> PreparedWeight:
        """Take over a weight."""
        return self._own.prepare(weight)

    def plan(self, spec: DenseSpec, max_rows: int) -> Plan:
        """Remember the spec."""
        return LibraryPlan(max_rows=max_rows, spec=spec, own=self._own.plan(spec, max_rows))

    def run(
        self, plan: Plan, x_TK: torch.Tensor, weight: PreparedWeight, out_TN: torch.Tensor
    ) -> None:
        """Multiply; groups are a batch of matrices."""
        assert isinstance(plan, LibraryPlan)
        values: torch.Tensor = weight.values  # type: ignore[attr-defined]
        spec, rows = plan.spec, x_TK.shape[0]
        if x_TK.dtype is not _BF16 or values.dtype is not _BF16:
            self._own.run(plan.own, x_TK, weight, out_TN)
            return
        if not number_format(spec.activation_format).is_plain:
            rounded_TK = torch.empty_like(x_TK, memory_format=torch.contiguous_format)
            self._transform.fake_quantise(plan, x_TK, spec.activation_format, rounded_TK)
            x_TK = rounded_TK
        wide: dict[str, Any] = {} if out_TN.dtype is _BF16 else {"out_dtype": out_TN.dtype}
        if spec.groups == 1:
            torch.mm(x_TK, values.t(), out=out_TN, **wide)
            return
        x_GTK = x_TK.view(rows, spec.groups, spec.in_width).transpose(0, 1)
        weight_GKN = values.view(spec.groups, spec.out_width, spec.in_width).transpose(1, 2)
        out_GTN = out_TN.view(rows, spec.groups, spec.out_width).transpose(0, 1)
        torch.bmm(x_GTK, weight_GKN, out=out_GTN, **wide)


def measured(scale: Scale, overrides: list[str]) -> tuple[list[Figure], Stamp]:
    """Every load with both: its figures, and what they were measured on."""
    loaded = load_settings(overrides=overrides)
    settings, progress = loaded.settings, ProgressStream()
    resolution = resolve_components(loaded, model_needs(scale.config, settings))
    resolved = resolution.require()
    own, sampler = model_parts(resolved, settings), load(resolved, "sampler")
    rates = measured_rates(own.device, copy_bytes=scale.copy_bytes, side=scale.side)
    storage = storage_of(scale.config, own)
    room = plan_room(scale, own, storage)
    keep_load_kernels(scale, room.config, room.pool, settings, resolved, progress)
    found: list[list[Measured]] = []
    for parts in (own, replace(own, dense=LibraryDense(own.dense, own.transform))):
        survey = Survey(
            scale,
            parts,
            sampler,
            room,
            rates=rates,
            storage=storage,
            records=settings.engine.graphs,
            progress=progress,
        )
        found.append(survey.measure()[0])
        survey.close()
        del survey, parts
        # The second model does not fit beside the first.
        gc.collect()
        if own.device.torch_device.type == "cuda":
            torch.cuda.empty_cache()
    pairs = zip(*found, strict=True)
    figures = [_figure(one, other, len(room.layers)) for one, other in pairs]
    return figures, stamp_of(resolution.report.device, settings.threads)


def _figure(own: Measured, library: Measured, layers: int) -> Figure:
    verb = "prompt" if isinstance(own.load, Prompt) else "decode"
    how = "recorded" if own.is_recorded and library.is_recorded else "launched"
    return Figure(
        name=f"invariance.{verb}[{own.load},layers={layers},steps={how}]",
        value=own.seconds * 1e3,
        unit="ms",
        reference=Reference(
            kind="peer",
            name="the same with cuBLAS in the slot gemm.dense",
            value=library.seconds * 1e3,
        ),
    )


def main() -> int:
    """Measure, print, and write.

    Returns:
        Exit code: 0, or 2 if the settings or this machine do not allow it.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scale", choices=sorted(SCALES), default="true")
    parser.add_argument("--layers", type=int, default=8, help="layers to build")
    parser.add_argument("--prompts", type=int, nargs="+", default=[512, 4096])
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 16, 64, 128, 256])
    parser.add_argument("--context", type=int, default=4096, help="tokens behind each step")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    scale = replace(
        SCALES[arguments.scale](),
        layers=arguments.layers,
        prompts=tuple(sorted(arguments.prompts)),
        sequences=tuple(sorted(arguments.sequences)),
        contexts=(arguments.context,),
        rows=(1,),
    )
    try:
        figures, stamp = measured(scale, ["device=nvidia", *arguments.set])
    except DeepInferError as error:
        complain(error.message, error.hint)
        return 2
    for one in figures:
        print(f"{one.name}: {one.value:.3f} ms, cuBLAS {one.reference.value:.3f}, {one.ratio:.3f}")
    if arguments.out is not None:
        found = [one.to_json(stamp) for one in figures]
        arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
