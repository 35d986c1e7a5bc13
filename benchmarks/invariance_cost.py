"""What does a decode step pay for dense products whose bits do not depend on the batch?

The layers of ``deepinfer bench layers``, built twice: with the kernels of ``nvidia.tilelang`` in
every slot, and with torch's library (cuBLAS) in the slot ``gemm.dense``, which picks another order
of additions for another number of rows. Everything else is the same object, rounding of rows too.

    python benchmarks/invariance_cost.py --layers 8 --sequences 1 16 64 256 --out FILE.json
"""

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from deepinfer_core.bench.layers.scales import SCALES
from deepinfer_core.bench.layers.survey import Measured, Survey
from deepinfer_core.bench.stamp import Stamp, stamp_of
from deepinfer_core.config import load_settings, resolve_components
from deepinfer_core.engine.model_folder import model_needs
from deepinfer_core.engine.model_loading import model_parts
from deepinfer_core.interfaces.component import Plan, Properties
from deepinfer_core.interfaces.gemm import DenseGemm, DenseSpec, PreparedWeight
from deepinfer_core.numeric import QuantTensor
from deepinfer_core.plugin import load

PINS = [
    f"components.{kind}.use=nvidia.tilelang"
    for kind in ("attention", "gemm", "sampler", "transform")
]


@dataclass(frozen=True, kw_only=True)
class LibraryPlan(Plan):
    """A spec, and what the component under test would do with it."""

    spec: DenseSpec
    own: Plan


class LibraryDense(DenseGemm):
    """Products of bf16 rows by torch's library; rows are rounded as by the component it replaces.

    Args:
        own: the component; takes over weights, and multiplies what is not bf16.
    """

    def __init__(self, own: Any) -> None:
        self._own = own

    @property
    def properties(self) -> Properties:
        """Not batch invariant: that is the question."""
        return Properties(batch_invariant="never", deterministic="always", graph_safe="always")

    def prepare(self, weight: QuantTensor) -> PreparedWeight:
        """Take over a weight."""
        prepared: PreparedWeight = self._own.prepare(weight)
        return prepared

    def plan(self, spec: DenseSpec, max_rows: int) -> Plan:
        """Remember the spec."""
        return LibraryPlan(max_rows=max_rows, spec=spec, own=self._own.plan(spec, max_rows))

    def run(
        self, plan: Plan, x_TK: torch.Tensor, weight: PreparedWeight, out_TN: torch.Tensor
    ) -> None:
        """Multiply; groups are a batch of matrices."""
        assert isinstance(plan, LibraryPlan)
        values = weight.values  # type: ignore[attr-defined]
        spec, rows = plan.spec, x_TK.shape[0]
        if x_TK.dtype is not torch.bfloat16 or values.dtype is not torch.bfloat16:
            self._own.run(plan.own, x_TK, weight, out_TN)
            return
        x_TK = self._own._rounded(x_TK, spec.activation_format)
        wide = {} if out_TN.dtype is torch.bfloat16 else {"out_dtype": out_TN.dtype}
        if spec.groups == 1:
            torch.mm(x_TK, values.t(), out=out_TN, **wide)
            return
        x_GTK = x_TK.view(rows, spec.groups, spec.in_width).transpose(0, 1)
        weight_GKN = values.view(spec.groups, spec.out_width, spec.in_width).transpose(1, 2)
        out_GTN = out_TN.view(rows, spec.groups, spec.out_width).transpose(0, 1)
        torch.bmm(x_GTK, weight_GKN, out=out_GTN, **wide)


def measured(arguments: argparse.Namespace) -> tuple[Stamp, tuple[int, ...], list[list[Measured]]]:
    """Every decode step with both, in one process; the layers; and what the figures carry."""
    scale = replace(
        SCALES["true"](),
        layers=arguments.layers,
        prompts=(arguments.context,),
        sequences=tuple(sorted(arguments.sequences)),
        contexts=(arguments.context,),
        rows=(1,),
        steps=arguments.steps,
    )
    loaded = load_settings(overrides=["device=nvidia", *PINS])
    resolution = resolve_components(loaded, model_needs(scale.config, loaded.settings))
    resolved = resolution.require()
    own, sampler = model_parts(resolved, loaded.settings), load(resolved, "sampler")
    found: list[list[Measured]] = []
    layers: tuple[int, ...] = ()
    for parts in (own, replace(own, dense=LibraryDense(own.dense))):
        survey = Survey(scale, parts, sampler, records=True)
        layers = survey.layers
        with torch.inference_mode():
            found.append(list(survey.decodings()))
        survey.close()
        del survey
        torch.cuda.empty_cache()
    return stamp_of(resolution.report.device, loaded.settings.threads), layers, found


def figures(
    stamp: Stamp, layers: tuple[int, ...], own: list[Measured], library: list[Measured]
) -> list[dict[str, Any]]:
    """One object a load."""
    return [
        {
            "name": f"decode step with batch invariant dense products[{one.load}]",
            "value": round(one.seconds * 1e3, 4),
            "unit": "ms",
            "peer": {
                "name": "the same with cuBLAS in the slot gemm.dense",
                "value": round(other.seconds * 1e3, 4),
            },
            "ratio": round(other.seconds / one.seconds, 4),
            "layers": list(layers),
            "recorded": one.is_recorded and other.is_recorded,
            "hardware": stamp.hardware,
            "date": stamp.date,
            "commit": stamp.commit,
        }
        for one, other in zip(own, library, strict=True)
    ]


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, help="layers to build; default: as many as fit")
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 16, 64, 256])
    parser.add_argument("--context", type=int, default=1024, help="tokens behind each step")
    parser.add_argument("--steps", type=int, default=16, help="decode steps of a loop")
    parser.add_argument("--out", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    stamp, layers, (own, library) = measured(arguments)
    found = figures(stamp, layers, own, library)
    text = json.dumps(found, indent=1)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n", encoding="utf-8")
    for one in found:
        print(f"{one['name']}: {one['value']} ms, cuBLAS {one['peer']['value']} ms, {one['ratio']}")


if __name__ == "__main__":
    main()
