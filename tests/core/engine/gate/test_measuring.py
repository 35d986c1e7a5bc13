"""Likelihoods on the two paths."""

from pathlib import Path

import pytest
from deepinfer_core.config import load_settings
from deepinfer_core.engine.gate.conditions import Condition
from deepinfer_core.engine.gate.measuring import measure, platform_of, token_likelihoods
from deepinfer_core.engine.gate.texts import Sample, Selection, select
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.scoring import token_nats
from deepinfer_core.errors import ConfigError, RequestError
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.plugin import DeviceFacts

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


def test_a_text_that_is_refused_fails(llm: LLM) -> None:
    bad = Sample(id="a/0", token_ids=(0, 1 << 20))
    with pytest.raises(RequestError):
        token_likelihoods(llm, [bad], PREFILL)


def test_a_checkpoint_without_tokenizer_is_refused(byte_checkpoint: Path, tmp_path: Path) -> None:
    config = ModelConfig.from_file(byte_checkpoint / "config.json")
    selection = Selection(file="x", sha256="", per_source=1, max_tokens=2)

    def unused(overrides: list[str]) -> LLM:
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
    other = platform_of(DeviceFacts(device="nvidia", model="NVIDIA H200"))
    assert other.processor == "NVIDIA H200"


def test_a_measurement_names_device_components_and_checkpoint(
    byte_checkpoint: Path, tmp_path: Path
) -> None:
    (tmp_path / "texts.jsonl").write_text('{"source": "a", "text": "once"}\n')
    selection = select(tmp_path, "texts.jsonl", per_source=1, max_tokens=4)
    config = ModelConfig.from_file(byte_checkpoint / "config.json")

    def open_model(overrides: list[str]) -> LLM:
        named = [f"model.path={byte_checkpoint}", *overrides]
        return LLM.from_settings(load_settings(overrides=named, environ={}))

    found = measure(open_model, byte_checkpoint, config, tmp_path, selection, [PREFILL, DECODE])
    assert list(found.conditions) == [PREFILL.name("cpu"), DECODE.name("cpu")]
    assert found.components["gemm.dense"] == "core.cpu"
    assert found.platform.processor != ""
    [whole, forced] = found.conditions.values()
    assert whole.samples == forced.samples
    assert len(whole.checkpoint) == len(whole.tokenizer) == 64
