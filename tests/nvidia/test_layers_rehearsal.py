"""Are all kernels that a survey of layers calls among those that are compiled beforehand?

Kernels run nowhere here; the survey has memory of the host in the place of the GPU's. A kernel that
was not rehearsed would be compiled in the middle of a measurement.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from deepinfer_core.bench.layers.bound import Rates
from deepinfer_core.bench.layers.loads import Decoding
from deepinfer_core.bench.layers.opening import storage_of
from deepinfer_core.bench.layers.rehearsal import load_kernels
from deepinfer_core.bench.layers.room import Room, plan_room
from deepinfer_core.bench.layers.scales import SCALES, Scale
from deepinfer_core.bench.layers.survey import Survey
from deepinfer_core.config import load_settings, resolve_components
from deepinfer_core.engine.model_folder import model_needs
from deepinfer_core.engine.model_loading import model_parts
from deepinfer_core.interfaces.operators.rehearsal import NotedKernels
from deepinfer_core.interfaces.operators.wanted import Rehearsal, WantedKernel
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.plugin import DeviceTarget
from deepinfer_core.telemetry.progress import ProgressStream
from deepinfer_core.testing.rerun_device import RerunDevice
from deepinfer_nvidia.kernels.launch import TileLangCompiler
from deepinfer_nvidia.sampler.tilelang import TileLangSampler

WithKernels = Callable[..., ModelParts]
RATES = Rates(copy_bytes_per_s=1e12, flops_per_s=1e12, host_bytes_per_s=1e10)


class NumberedKernels(NotedKernels):
    """Notes down calls; what later work or the host looks at becomes zero."""

    def prepared(self, build: Any, spec: Any, tuning: Any) -> Callable[..., None]:
        return partial(self.call, build, spec, tuning)

    def call(self, build: Any, spec: Any, tuning: Any, /, **tensors: torch.Tensor) -> None:
        super().call(build, spec, tuning, **tensors)
        for name in ("expert_Tk", "index_TL", "row_TC", "token_R", "invalid_R"):
            if name in tensors:
                tensors[name].zero_()


def noting_parts(
    rehearsal: Rehearsal, folder: Path, with_kernels: WithKernels
) -> tuple[ModelParts, TileLangSampler]:
    kernels = NumberedKernels(rehearsal, TileLangCompiler("sm_90a", folder / "nvidia"))
    loaded = load_settings(None, [])
    on_cpu = model_parts(resolve_components(loaded).require(), loaded.settings)
    return with_kernels(on_cpu, kernels), TileLangSampler(kernels, "cpu")


def small(**changes: Any) -> Scale:
    return replace(SCALES["small"](), layers=9, **changes)


def rehearsed(scale: Scale, room: Room, folder: Path) -> set[WantedKernel]:
    loaded = load_settings(None, ["device=nvidia", f"kernels.cache_dir={folder}"])
    needs = model_needs(scale.config, loaded.settings)
    resolved = resolve_components(loaded, needs, DeviceTarget(arch="sm_90a")).require()
    return set(load_kernels(scale, room.config, room.pool, loaded.settings, resolved))


@pytest.mark.parametrize(("sequences", "records"), [((2,), False), ((1, 5), True)])
def test_a_survey_calls_no_kernel_that_was_not_rehearsed(
    sequences: tuple[int, ...], records: bool, tmp_path: Path, with_kernels: WithKernels
) -> None:
    scale = small(sequences=sequences, contexts=(40, 300))
    rehearsal = Rehearsal()
    parts, sampler = noting_parts(rehearsal, tmp_path, with_kernels)
    parts = replace(parts, device=RerunDevice())
    storage = storage_of(scale.config, parts)
    room = plan_room(scale, parts, storage)
    survey = Survey(
        scale,
        parts,
        sampler,
        room,
        rates=RATES,
        storage=storage,
        records=records,
        progress=ProgressStream(),
    )
    measured, _ = survey.measure()
    survey.close()
    assert {one.is_recorded for one in measured if isinstance(one.load, Decoding)} == {records}
    called = set(rehearsal.wanted)
    assert {one.operator for one in called} >= {"attention_sparse", "gemm_experts"}
    missing = called - rehearsed(scale, room, tmp_path)
    assert sorted({(one.operator, str(one.spec), str(one.tuning)) for one in missing}) == []
