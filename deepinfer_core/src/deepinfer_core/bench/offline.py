"""How is one measurement made, from settings to figures?

What can be refused without weights is refused first: prompts of the wrong length, then whatever
loading refuses, then prompts that only the tokenizer can count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from deepinfer_core.bench.bounds import Bounds
from deepinfer_core.bench.figures import Figure
from deepinfer_core.bench.latency import latency_figures
from deepinfer_core.bench.lengths import Lengths
from deepinfer_core.bench.machine_rates import machine_rates
from deepinfer_core.bench.model_cost import model_cost
from deepinfer_core.bench.running import RunTimes, run_repeatedly
from deepinfer_core.bench.stamp import Stamp, computing, stamp_of
from deepinfer_core.bench.throughput import throughput_figures
from deepinfer_core.bench.workload import GivenPrompts, RandomPrompts, check_fits
from deepinfer_core.config import LoadedSettings, checkpoint_folder
from deepinfer_core.engine.admission import checked_prompt
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.model_folder import read_config
from deepinfer_core.engine.prompts import Prompt
from deepinfer_core.plugin import load
from deepinfer_core.telemetry.progress import ProgressStream

__all__ = ["Experiment", "Result", "measure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """What to measure.

    Attributes:
        kind: which figures.
        prompts: those of a file; None: random ones.
        source_name: of the file, for the names of the figures.
        count: random prompts of a run.
        inputs: their lengths.
        outputs: lengths of the answers.
        warmup: runs that do not count.
        repeats: runs that do.
        seed: of lengths and random tokens.
    """

    kind: Literal["throughput", "latency"]
    prompts: Sequence[Prompt] | None
    source_name: str
    count: int
    inputs: Lengths
    outputs: Lengths
    warmup: int
    repeats: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What was measured.

    Attributes:
        figures: with their bounds.
        stamp: of all of them.
        load_name: what stands in the brackets of their names.
        components: distinct names of those that computed, in alphabetical order, joined by ``+``.
        runs: that they come from.
    """

    figures: list[Figure]
    stamp: Stamp
    load_name: str
    components: str
    runs: list[RunTimes]

    def to_json(self) -> list[dict[str, Any]]:
        """The objects that ``deepinfer bench --json`` prints."""
        return [figure.to_json(self.stamp) for figure in self.figures]


def measure(
    experiment: Experiment,
    loaded: LoadedSettings,
    progress: ProgressStream,
    open_llm: Callable[[LoadedSettings, ProgressStream], LLM] = LLM.from_settings,
) -> Result:
    """Load the model and run the experiment.

    Args:
        experiment: what to measure.
        loaded: ``engine.max_num_seqs`` says how many requests run at once.
        progress: told about loading and about each run.
        open_llm: loads the model.

    Raises:
        RequestError: a prompt does not fit the model.
        DeepInferError: what ``LLM`` raises, or a request failed.
    """
    seats, threads = loaded.settings.engine.max_num_seqs, loaded.settings.threads
    known = _random_prompts(experiment, loaded) if experiment.prompts is None else None
    with open_llm(loaded, progress) as llm:
        source = known or _given_prompts(experiment, llm)
        bounds = _bounds(llm)
        total = experiment.warmup + experiment.repeats
        with progress.phase("bench", total=total, unit="runs") as phase:
            runs = run_repeatedly(
                lambda ids, params: llm.stream(None, params, ids),
                source,
                warmup=experiment.warmup,
                repeats=experiment.repeats,
                advance=phase.advance,
            )
        facts = llm.loaded.resolution.report.device
        components = computing(llm.loaded.resolution.require())
    name = f"{_load_name(experiment, source, seats, bounds)},components={components}"
    if experiment.kind == "latency":
        figures = latency_figures(runs, bounds, load_name=name)
    else:
        figures = throughput_figures(runs, bounds, load_name=name, batch_size=seats)
    stamp = stamp_of(facts, threads)
    return Result(figures=figures, stamp=stamp, load_name=name, components=components, runs=runs)


def _random_prompts(experiment: Experiment, loaded: LoadedSettings) -> RandomPrompts:
    settings, inputs, outputs = loaded.settings, experiment.inputs, experiment.outputs
    config = read_config(checkpoint_folder(settings.model.path), settings)
    context_tokens = config.text_config.max_position_embeddings
    longest_tokens = settings.engine.max_model_len or context_tokens
    check_fits([inputs.highest_tokens], [outputs.highest_tokens], longest_tokens)
    return RandomPrompts(
        count=experiment.count,
        inputs=inputs,
        outputs=outputs,
        vocabulary=config.text_config.vocab_size,
        bos_id=config.bos_token_id,
        seed=experiment.seed,
    )


def _given_prompts(experiment: Experiment, llm: LLM) -> GivenPrompts:
    rules = llm.engine.rules
    asked = experiment.prompts or ()
    ids = [llm.encode(prompt) if isinstance(prompt, str) else prompt for prompt in asked]
    prompts = tuple(checked_prompt(rules, prompt) for prompt in ids)
    source = GivenPrompts(prompts=prompts, outputs=experiment.outputs, seed=experiment.seed)
    lengths = [len(prompt) for prompt in prompts]
    check_fits(lengths, source.load(0).output_tokens, rules.max_model_tokens)
    return source


def _bounds(llm: LLM) -> Bounds:
    cost = model_cost(llm.loaded.config)
    device = load(llm.loaded.resolution.require(), "device")
    return Bounds(cost=cost, rates=machine_rates(device, cost.step_bytes))


def _load_name(
    experiment: Experiment, source: RandomPrompts | GivenPrompts, seats: int, bounds: Bounds
) -> str:
    count = len(source.load(0).prompts)
    parts = {
        "parameters": bounds.cost.parameters,
        "input": experiment.source_name or experiment.inputs.text,
        "output": experiment.outputs.text,
        "prompts": count,
        "batch": min(seats, count),
    }
    return ",".join(f"{name}={value}" for name, value in parts.items())
