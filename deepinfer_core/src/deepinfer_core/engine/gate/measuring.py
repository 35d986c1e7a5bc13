"""How are likelihoods measured under each condition?

Each condition gets an engine of its own, opened with its settings. The prompt path reads
log-probabilities of prompt tokens; the decode path forces the text behind a beginning as output, so
that every scored position goes through a decode step. A beginning that is to be reused is fed once
before, and the engine must say that it reused it.
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
from deepinfer_core.engine.outputs import Completion, TokenLogprob
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.tokenizer import TOKENIZER_FILE, open_tokenizer
from deepinfer_core.errors import ConfigError, EngineError
from deepinfer_core.interfaces.kinds import slot_title
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.plugin import DeviceFacts

__all__ = ["OpenModel", "measure", "platform_of", "token_likelihoods"]

OpenModel = Callable[[Condition, list[str]], LLM]
"""Loads the model for a condition, with some more settings, each ``path=value``."""


def platform_of(facts: DeviceFacts) -> Platform:
    """The platform of this process, which runs on a device with these facts."""
    import torch

    is_cpu = facts.device == "cpu"
    capability = ".".join(map(str, facts.capability))
    return Platform(
        machine=str(facts.extra.get("machine", "")),
        processor=facts.model.split(" ")[0] if is_cpu else facts.model,
        instruction_sets=facts.instruction_sets if is_cpu else (capability,),
        vector=torch.backends.cpu.get_cpu_capability() if is_cpu else "",
        torch=str(torch.__version__),
        compiler=str(facts.extra.get("compiler", "")),
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
        conditions: at least one; those on long texts are left out if the selection has none.

    Raises:
        ConfigError: the texts cannot be used, or no condition is left.
        DeepInferError: whatever loading and running raise.
    """
    wanted = [one for one in conditions if selection.long_per_source or not one.is_long]
    if not wanted:
        raise ConfigError(
            "the baseline has no long texts, which all of these conditions need",
            hint="deepinfer eval refresh --long-per-source 1",
        )
    texts = {
        are_long: _samples(checkpoint, config, baseline_folder, selection, are_long)
        for are_long in {one.is_long for one in wanted}
    }
    identity, tokenizer = _fingerprints(checkpoint)
    scores: dict[str, ConditionScores] = {}
    facts = DeviceFacts(device="")
    for condition in wanted:
        samples = texts[condition.is_long]
        lengths = [len(sample.token_ids) for sample in samples]
        with open_model(condition, condition.overrides(lengths)) as llm:
            name, facts = condition.name(_device(llm)), llm.loaded.resolution.report.device
            scores[name] = _scores(llm, samples, condition, identity, tokenizer)
    return Measurement(platform=platform_of(facts), selection=selection, conditions=scores)


def _device(llm: LLM) -> str:
    return llm.loaded.resolution.require().context.device


def _scores(
    llm: LLM, samples: Sequence[Sample], condition: Condition, checkpoint: str, tokenizer: str
) -> ConditionScores:
    picks = llm.loaded.resolution.require().picks
    return ConditionScores(
        checkpoint=checkpoint,
        tokenizer=tokenizer,
        arithmetic=condition.arithmetic,
        rounding=condition.rounding,
        components={slot_title(pick.kind, pick.slot): pick.spec.name for pick in picks},
        samples=token_likelihoods(llm, samples, condition),
    )


def token_likelihoods(
    llm: LLM, samples: Sequence[Sample], condition: Condition
) -> tuple[SampleScore, ...]:
    """Likelihoods of every token behind the beginning of each sample.

    Args:
        llm: opened with the settings of the condition.
        samples: the texts.
        condition: tells the path.

    Raises:
        RequestError: a text was refused.
        EngineError: a step failed, or a beginning was not reused as the condition says.
    """
    texts = [list(sample.token_ids) for sample in samples]
    firsts = [min(condition.prompt_tokens, len(ids) - 1) for ids in texts]
    if condition.path == "prefill":
        params = [SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=True)] * len(texts)
        done = _generate(llm, texts, params)
        entries = [(one.prompt_logprobs or ())[1:] for one in done]
    else:
        prompts = [ids[:first] for ids, first in zip(texts, firsts, strict=True)]
        if condition.reuse != "none":
            _generate(llm, prompts, [SamplingParams(temperature=0, max_tokens=1)] * len(texts))
        params = [_forcing(ids[first:]) for ids, first in zip(texts, firsts, strict=True)]
        done = _generate(llm, prompts, params)
        _check_reuse(llm, condition, done)
        entries = [one.logprobs or () for one in done]
    return tuple(
        SampleScore(id=sample.id, nats=_nats(scored), first=first)
        for sample, scored, first in zip(samples, entries, firsts, strict=True)
    )


def _nats(entries: Sequence[TokenLogprob | None]) -> tuple[float, ...]:
    return tuple(-entry.logprob for entry in entries if entry is not None)


def _generate(llm: LLM, prompts: list[list[int]], params: list[SamplingParams]) -> list[Completion]:
    done = llm.generate(sampling_params=params, prompt_token_ids=prompts)
    for one in done:
        if one.error is not None:
            raise one.error
    return done


def _check_reuse(llm: LLM, condition: Condition, done: list[Completion]) -> None:
    """A prompt that was computed anew would be compared with itself, and hide every fault."""
    policy = llm.engine.batch.pages.policy
    for one in done:
        usage = one.usage
        cached = (usage.prompt_tokens - 1) // policy.block_tokens * policy.block_tokens
        least, most = {
            "none": (0, 0),
            "snapshot": (0, 0),
            "recompute": (policy.window_tokens + 1, cached),
            "bounded": (policy.window_tokens, policy.window_tokens),
        }[condition.reuse]
        wanted = 0 if condition.reuse == "none" else cached
        if usage.cached_tokens != wanted or not least <= usage.replayed_tokens <= most:
            raise EngineError(
                f"{condition.name('')[1:]} found {usage.cached_tokens} cached tokens and fed"
                f" {usage.replayed_tokens} of them again, expected {wanted} and {least} to {most}",
                hint="the condition would not measure what it says",
            )


def _forcing(ids: list[int]) -> SamplingParams:
    return SamplingParams(
        temperature=0, max_tokens=len(ids), golden_token_ids=ids, logprobs=True, ignore_eos=True
    )


def _samples(
    checkpoint: Path, config: ModelConfig, folder: Path, selection: Selection, are_long: bool
) -> tuple[Sample, ...]:
    tokenizer = open_tokenizer(checkpoint)
    if tokenizer is None:
        raise ConfigError(
            f"{checkpoint} holds no {TOKENIZER_FILE}, which the texts of the gate need",
            hint="copy it from where the checkpoint came from",
        )
    begin = config.bos_token_id
    return read_samples(
        folder,
        selection,
        lambda text: [begin, *tokenizer.encode(text)],
        config.eos_token_id,
        are_long=are_long,
    )


def _fingerprints(checkpoint: Path) -> tuple[str, str]:
    from deepinfer_core.weights.fingerprint import fingerprint
    from deepinfer_core.weights.index import open_shards

    tokenizer = (checkpoint / TOKENIZER_FILE).read_bytes()
    whole = fingerprint(checkpoint, open_shards(checkpoint), full=True)
    return whole, hashlib.sha256(tokenizer).hexdigest()
