"""How do settings become a survey of layers?

In the order of an engine that loads: components, device, kernels, weights, then everything that is
measured. There is no checkpoint: the configuration comes with the program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from deepinfer_core.bench.layers.opening import storage_of
from deepinfer_core.bench.layers.rates import measured_rates
from deepinfer_core.bench.layers.rehearsal import keep_load_kernels
from deepinfer_core.bench.layers.results import LayerResult
from deepinfer_core.bench.layers.room import plan_room
from deepinfer_core.bench.layers.survey import Survey
from deepinfer_core.bench.stamp import computing, stamp_of
from deepinfer_core.config import LoadedSettings, resolve_components
from deepinfer_core.engine.model_folder import model_needs
from deepinfer_core.engine.model_loading import model_parts
from deepinfer_core.plugin import load

if TYPE_CHECKING:
    from deepinfer_core.bench.layers.scales import Scale
    from deepinfer_core.telemetry.progress import ProgressStream

__all__ = ["measure_layers"]


def measure_layers(scale: Scale, loaded: LoadedSettings, progress: ProgressStream) -> LayerResult:
    """Run a survey.

    Args:
        scale: what is measured.
        loaded: the settings; of the engine's only ``graphs`` matters.
        progress: told about compiling, building and measuring.

    Raises:
        PluginError: a slot cannot be filled.
        ConfigError: more layers are asked for than there are, or fewer than kinds.
        DeviceError: there is not enough memory, or a kernel cannot be compiled.
        NotSupported: a component lacks a format or width of the model.
    """
    settings = loaded.settings
    resolution = resolve_components(loaded, model_needs(scale.config, settings))
    resolved = resolution.require()
    torch.set_num_threads(settings.threads)
    parts, sampler = model_parts(resolved, settings), load(resolved, "sampler")
    rates = measured_rates(parts.device, copy_bytes=scale.copy_bytes, side=scale.side)
    storage = storage_of(scale.config, parts)
    room = plan_room(scale, parts, storage)
    keep_load_kernels(scale, room.config, room.pool, settings, resolved, progress)
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
    try:
        measured, trace = survey.measure()
    finally:
        survey.close()
    text = scale.config.text_config
    return LayerResult(
        stamp=stamp_of(resolution.report.device, settings.threads),
        components=computing(resolved),
        layers=room.layers,
        whole=text.num_hidden_layers,
        experts=text.n_routed_experts,
        rates=rates,
        built_s=survey.built_s,
        measured=measured,
        served=scale.traced,
        trace=trace,
    )
