"""How do settings become a survey of layers?

In the order of an engine that loads: components, device, then everything on it. There is no
checkpoint: the configuration comes with the program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from deepinfer_core.bench.layers.results import LayerResult
from deepinfer_core.bench.layers.survey import Survey
from deepinfer_core.bench.stamp import stamp_of
from deepinfer_core.config import LoadedSettings, resolve_components
from deepinfer_core.engine.model_folder import model_needs
from deepinfer_core.engine.model_loading import model_parts
from deepinfer_core.plugin import Resolved, load

if TYPE_CHECKING:
    from deepinfer_core.bench.layers.scales import Scale

__all__ = ["measure_layers"]


def measure_layers(scale: Scale, loaded: LoadedSettings) -> LayerResult:
    """Run a survey.

    Args:
        scale: what is measured.
        loaded: the settings; of the engine's only ``graphs`` matters.

    Raises:
        PluginError: a slot cannot be filled.
        DeviceError: there is not enough memory.
        NotSupported: a component lacks a format or width of the model.
    """
    settings = loaded.settings
    resolution = resolve_components(loaded, model_needs(scale.config, settings))
    resolved = resolution.require()
    torch.set_num_threads(settings.threads)
    parts, sampler = model_parts(resolved, settings), load(resolved, "sampler")
    facts = resolution.report.device
    survey = Survey(scale, parts, sampler, records=settings.engine.graphs)
    try:
        measured = [*survey.prompts(), *survey.decodings()]
        trace = survey.trace(scale.traced)
    finally:
        survey.close()
    text = scale.config.text_config
    return LayerResult(
        stamp=stamp_of(facts, settings.threads),
        components=_computing(resolved),
        layers=survey.layers,
        whole=text.num_hidden_layers,
        experts=text.n_routed_experts,
        rates=survey.rates,
        built_s=survey.built_s,
        measured=measured,
        served=scale.traced,
        trace=trace,
    )


def _computing(resolved: Resolved) -> str:
    """Names of all picks but the device's, whose name says nothing about kernels."""
    names = {pick.spec.name for pick in resolved.picks if pick.kind != "device"}
    return "+".join(sorted(names))
