"""How are likelihoods measured under each condition?

Each condition gets an engine of its own, opened with its settings. The prompt path reads
log-probabilities of prompt tokens; the decode path forces the text as output, so that every
position goes through a decode step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from deepinfer_core.engine.gate.baseline import (
    ConditionScores,
    Measurement,
    Platform,
    SampleScore,
)
from deepinfer_core.engine.gate.conditions import Condition
from deepinfer_core.engine.gate.texts import Sample, Selection, read_samples
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.outputs import TokenLogprob
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.tokenizer import TOKENIZER_FILE, open_tokenizer
from deepinfer_core.errors import ConfigError
from deepinfer_core.interfaces.kinds import slot_title
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.plugin import DeviceFacts

__all__ = ["OpenModel", "measure", "platform_of", "token_likelihoods"]

OpenModel = Callable[[list[str]], LLM]
"""Loads the model with some more settings, each ``path=value``."""


def platform_of(facts: DeviceFacts) -> Platform:
    """The platform of this process, which runs on a device with these facts."""
    import torch

    is_cpu = facts.device == "cpu"
    return Platform(
        machine=str(facts.extra.get("machine", "")),
        processor=facts.model.split(" ")[0] if is_cpu else facts.model,
        instruction_sets=facts.instruction_sets,
        vector=torch.backends.cpu.get_cpu_capability(),
        torch=str(torch.__version__),
    )


def measure(
    open_model: OpenModel,
    checkpoint: Path,
    config: ModelConfig,
    baseline_folder: Path,
    selection: Selection,
    conditions: Sequence[Condition],
) -> Measurement:
    """Run the gate.

    Args:
        open_model: loads the checkpoint.
        checkpoint: its folder.
        config: its configuration.
        baseline_folder: where the path of the texts starts.
        selection: the texts.
        conditions: at least one.

    Raises:
        ConfigError: the texts cannot be used.
        DeepInferError: whatever loading and running raise.
    """
    samples = _samples(checkpoint, config, baseline_folder, selection)
    lengths = [len(sample.token_ids) for sample in samples]
    identity, tokenizer = _fingerprints(checkpoint)
    scores: dict[str, ConditionScores] = {}
    components: dict[str, str] = {}
    facts = DeviceFacts(device="")
    for condition in conditions:
        with open_model(condition.overrides(lengths)) as llm:
            resolved = llm.loaded.resolution.require()
            facts = llm.loaded.resolution.report.device
            components |= {slot_title(p.kind, p.slot): p.spec.name for p in resolved.picks}
            scores[condition.name(resolved.context.device)] = ConditionScores(
                checkpoint=identity,
                tokenizer=tokenizer,
                arithmetic=condition.arithmetic,
                rounding=condition.rounding,
                samples=token_likelihoods(llm, samples, condition),
            )
    return Measurement(
        platform=platform_of(facts), components=components, selection=selection, conditions=scores
    )


def token_likelihoods(
    llm: LLM, samples: Sequence[Sample], condition: Condition
) -> tuple[SampleScore, ...]:
    """Likelihoods of every token but the first of each sample.

    Args:
        llm: opened with the settings of the condition.
        samples: the texts.
        condition: tells the path.

    Raises:
        RequestError, EngineError: a text was refused, or a step failed.
    """
    texts = [list(sample.token_ids) for sample in samples]
    if condition.path == "prefill":
        params = [SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=True)] * len(texts)
        prompts = texts
    else:
        params = [_forcing(ids[1:]) for ids in texts]
        prompts = [ids[:1] for ids in texts]
    found = []
    for sample, done in zip(
        samples, llm.generate(sampling_params=params, prompt_token_ids=prompts), strict=True
    ):
        if done.error is not None:
            raise done.error
        entries: Sequence[TokenLogprob | None] = done.logprobs or ()
        if condition.path == "prefill":
            entries = (done.prompt_logprobs or ())[1:]
        nats = tuple(-entry.logprob for entry in entries if entry is not None)
        found.append(SampleScore(id=sample.id, nats=nats))
    return tuple(found)


def _forcing(ids: list[int]) -> SamplingParams:
    return SamplingParams(
        temperature=0, max_tokens=len(ids), golden_token_ids=ids, logprobs=True, ignore_eos=True
    )


def _samples(
    checkpoint: Path, config: ModelConfig, folder: Path, selection: Selection
) -> tuple[Sample, ...]:
    tokenizer = open_tokenizer(checkpoint)
    if tokenizer is None:
        raise ConfigError(
            f"{checkpoint} holds no {TOKENIZER_FILE}, which the texts of the gate need",
            hint="copy it from where the checkpoint came from",
        )
    begin = config.bos_token_id
    return read_samples(
        folder, selection, lambda text: [begin, *tokenizer.encode(text)], config.eos_token_id
    )


def _fingerprints(checkpoint: Path) -> tuple[str, str]:
    from deepinfer_core.weights.fingerprint import fingerprint
    from deepinfer_core.weights.index import open_shards

    tokenizer = (checkpoint / TOKENIZER_FILE).read_bytes()
    whole = fingerprint(checkpoint, open_shards(checkpoint), full=True)
    return whole, hashlib.sha256(tokenizer).hexdigest()
