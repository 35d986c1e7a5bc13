"""Likelihoods on the two paths."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.config import load_settings
from deepinfer_core.engine.gate.conditions import LONG_PROMPT_TOKENS, Condition
from deepinfer_core.engine.gate.measuring import measure, platform_of, token_likelihoods
from deepinfer_core.engine.gate.texts import Sample, Selection, select
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.rows import StepHandle
from deepinfer_core.engine.scoring import token_nats
from deepinfer_core.errors import ConfigError, EngineError, RequestError
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.plugin import DeviceFacts
from deepinfer_core.schedule.plan import StepPlan

PREFILL = Condition(numerics="production", cache_quantisation=True, path="prefill")
DECODE = Condition(numerics="production", cache_quantisation=True, path="decode")
SAMPLES = (
    Sample(id="a/0", token_ids=(0, 20, 30, 40, 1, 50)),
    Sample(id="a/1", token_ids=(0, 21)),
)


def test_prompt_and_forced_output_are_scored_alike_behind_the_end_token_too(llm: LLM) -> None:
    prefill = token_likelihoods(llm, SAMPLES, PREFILL)
    assert token_likelihoods(llm, SAMPLES, DECODE) == prefill
    assert [len(one.nats) for one in prefill] == [5, 1]
    sums = token_nats(llm, [one.token_ids for one in SAMPLES])
    assert [one.nll_sum for one in prefill] == sums


def test_the_decode_path_takes_a_step_for_each_token(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = []
    launch = llm.engine.runner.launch

    def counting(plan, before):  # type: ignore[no-untyped-def]
        rows.append([len(step.token_ids) for step in plan.sequences])
        return launch(plan, before)

    monkeypatch.setattr(llm.engine.runner, "launch", counting)
    token_likelihoods(llm, SAMPLES, DECODE)
    assert rows == [[1, 1], [1], [1], [1], [1]]


def behind(**fields: Any) -> Condition:
    return Condition(
        numerics="production",
        cache_quantisation=True,
        path="decode",
        prompt_tokens=LONG_PROMPT_TOKENS,
        is_long=True,
        **fields,
    )


@pytest.fixture(scope="module")
def long_samples() -> tuple[Sample, ...]:
    draw = random.Random("long_samples")
    ids = [tuple(draw.choices(range(9, 265), k=LONG_PROMPT_TOKENS + 3)) for _ in range(2)]
    return tuple(Sample(id=f"a/{n}", token_ids=one) for n, one in enumerate(ids))


@pytest.fixture
def open_for(byte_checkpoint: Path) -> Iterator[Callable[[Condition], LLM]]:
    opened: list[LLM] = []

    def build(condition: Condition, *more: str) -> LLM:
        settings = condition.overrides([LONG_PROMPT_TOKENS + 3] * 2)
        named = [f"model.path={byte_checkpoint}", *settings, *more]
        opened.append(LLM.from_settings(load_settings(overrides=named, environ={})))
        return opened[-1]

    yield build
    for one in opened:
        one.close()


def test_a_prompt_met_again_is_reused_and_scored_alike(
    open_for: Callable[..., LLM], long_samples: tuple[Sample, ...]
) -> None:
    cold = token_likelihoods(open_for(behind()), long_samples, behind())
    assert [(one.first, len(one.nats)) for one in cold] == [(LONG_PROMPT_TOKENS, 3)] * 2
    for reuse in ("snapshot", "recompute"):
        again = behind(reuse=reuse)
        assert token_likelihoods(open_for(again), long_samples, again) == cold, reuse


def test_bounded_recovery_is_an_approximation(
    open_for: Callable[..., LLM], long_samples: tuple[Sample, ...]
) -> None:
    bounded = behind(reuse="bounded")
    found = token_likelihoods(open_for(bounded), long_samples, bounded)
    assert found != token_likelihoods(open_for(behind()), long_samples, behind())


@pytest.mark.parametrize(
    ("reuse", "setting"),
    [
        ("snapshot", "engine.prefix_cache=false"),
        ("snapshot", "engine.snapshot_slots=0"),
        ("recompute", "engine.snapshot_slots=2"),
        ("recompute", "engine.recovery=bounded"),
        ("bounded", "engine.recovery=exact"),
    ],
)
def test_a_prompt_that_is_not_reused_as_named_fails(
    open_for: Callable[..., LLM], long_samples: tuple[Sample, ...], reuse: str, setting: str
) -> None:
    condition = behind(reuse=reuse)
    with pytest.raises(EngineError, match="would not measure what it says"):
        token_likelihoods(open_for(condition, setting), long_samples[:1], condition)


@pytest.mark.parametrize("is_mixed", [True, False])
def test_chunks_meet_decodes_in_a_step_where_the_condition_says_so(
    open_for: Callable[..., LLM],
    long_samples: tuple[Sample, ...],
    monkeypatch: pytest.MonkeyPatch,
    is_mixed: bool,
) -> None:
    condition = behind(chunk_tokens=64, is_mixed=is_mixed)
    llm, kinds = open_for(condition), set()
    launch = llm.engine.runner.launch

    def watching(plan: StepPlan, before: StepHandle | None) -> StepHandle:
        kinds.add(frozenset(step.start < LONG_PROMPT_TOKENS for step in plan.sequences))
        return launch(plan, before)

    monkeypatch.setattr(llm.engine.runner, "launch", watching)
    token_likelihoods(llm, long_samples, condition)
    assert (frozenset({True, False}) in kinds) == is_mixed


def test_conditions_on_long_texts_are_left_out_without_them(
    byte_checkpoint: Path, tmp_path: Path
) -> None:
    (tmp_path / "texts.jsonl").write_text('{"source": "a", "text": "once"}\n')
    selection = select(tmp_path, "texts.jsonl", per_source=1, max_tokens=4)
    config = ModelConfig.from_file(byte_checkpoint / "config.json")

    def open_model(condition: Condition, overrides: list[str]) -> LLM:
        named = [f"model.path={byte_checkpoint}", *overrides]
        return LLM.from_settings(load_settings(overrides=named, environ={}))

    given = open_model, byte_checkpoint, config, tmp_path, selection
    assert list(measure(*given, [behind(), PREFILL]).conditions) == [PREFILL.name("cpu")]
    with pytest.raises(ConfigError, match="has no long texts"):
        measure(*given, [behind()])


def test_a_text_that_is_refused_fails(llm: LLM) -> None:
    bad = Sample(id="a/0", token_ids=(0, 1 << 20))
    with pytest.raises(RequestError):
        token_likelihoods(llm, [bad], PREFILL)


def test_a_checkpoint_without_tokenizer_is_refused(byte_checkpoint: Path, tmp_path: Path) -> None:
    config = ModelConfig.from_file(byte_checkpoint / "config.json")
    selection = Selection(file="x", sha256="", per_source=1, max_tokens=2)

    def unused(condition: Condition, overrides: list[str]) -> LLM:
        raise AssertionError(overrides)

    with pytest.raises(ConfigError, match=r"holds no tokenizer\.json"):
        measure(unused, tmp_path, config, tmp_path, selection, [PREFILL])


def test_the_platform_is_that_of_the_device() -> None:
    facts = DeviceFacts(
        device="cpu",
        model="AMD EPYC 9",
        instruction_sets=("avx", "avx2"),
        extra={"machine": "x86_64"},
    )
    found = platform_of(facts)
    assert (found.machine, found.processor) == ("x86_64", "AMD")
    assert found.instruction_sets == ("avx", "avx2")
    assert found.compiler == ""


def test_another_device_is_its_whole_model_its_capability_and_its_compiler() -> None:
    facts = DeviceFacts(
        device="acme", model="ACME H1", capability=(9, 0), extra={"compiler": "acmecc 3"}
    )
    found = platform_of(facts)
    assert (found.processor, found.instruction_sets) == ("ACME H1", ("9.0",))
    assert (found.vector, found.compiler) == ("", "acmecc 3")


def test_a_measurement_names_device_components_and_checkpoint(
    byte_checkpoint: Path, tmp_path: Path
) -> None:
    (tmp_path / "texts.jsonl").write_text('{"source": "a", "text": "once"}\n')
    selection = select(tmp_path, "texts.jsonl", per_source=1, max_tokens=4)
    config = ModelConfig.from_file(byte_checkpoint / "config.json")

    def open_model(condition: Condition, overrides: list[str]) -> LLM:
        named = [f"model.path={byte_checkpoint}", "components.gemm.use=core.reference", *overrides]
        return LLM.from_settings(load_settings(overrides=named, environ={}))

    found = measure(open_model, byte_checkpoint, config, tmp_path, selection, [PREFILL, DECODE])
    assert list(found.conditions) == [PREFILL.name("cpu"), DECODE.name("cpu")]
    assert found.platform.processor != ""
    [whole, forced] = found.conditions.values()
    assert whole.samples == forced.samples
    assert whole.components["gemm.dense"] == forced.components["gemm.dense"] == "core.reference"
    assert len(whole.checkpoint) == len(whole.tokenizer) == 64
