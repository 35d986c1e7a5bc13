"""A small measurement, its baseline, and an engine over the small checkpoint."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from deepinfer_core.engine.gate.baseline import (
    TOLERANCES,
    Baseline,
    ConditionScores,
    Measurement,
    Platform,
    Refresh,
    SampleScore,
)
from deepinfer_core.engine.gate.conditions import Condition
from deepinfer_core.engine.gate.texts import Selection
from deepinfer_core.engine.llm import LLM

WHOLE = Condition(numerics="semantic", cache_quantisation=False, path="prefill")
DECODE = Condition(numerics="semantic", cache_quantisation=False, path="decode")
PRODUCTION = Condition(numerics="production", cache_quantisation=True, path="prefill")


def scores(condition: Condition, *samples: SampleScore) -> ConditionScores:
    return ConditionScores(
        checkpoint="c0ffee",
        tokenizer="beef",
        arithmetic=condition.arithmetic,
        rounding=condition.rounding,
        components={"gemm.dense": "core.reference"},
        samples=samples,
    )


@pytest.fixture
def measurement() -> Measurement:
    plain = (
        SampleScore(id="tales/0", nats=(1.5, 0.1, 2.0)),
        SampleScore(id="tales/1", nats=(0.25, 3.0)),
    )
    rounded = (
        SampleScore(id="tales/0", nats=(1.5, 0.125, 2.0)),
        SampleScore(id="tales/1", nats=(0.25, 3.5)),
    )
    return Measurement(
        platform=Platform(
            machine="x86_64",
            processor="AMD",
            instruction_sets=("avx", "avx2"),
            vector="AVX2",
            torch="2.13.0",
        ),
        selection=Selection(file="texts.jsonl", sha256="ab", per_source=2, max_tokens=4),
        conditions={
            WHOLE.name("cpu"): scores(WHOLE, *plain),
            DECODE.name("cpu"): scores(DECODE, *plain),
            PRODUCTION.name("cpu"): scores(PRODUCTION, *rounded),
        },
    )


@pytest.fixture
def baseline(measurement: Measurement) -> Baseline:
    event = Refresh(reason="first", commit="1234")
    return Baseline(measurement=measurement, tolerances=TOLERANCES, history=(event,))


@pytest.fixture(scope="module")
def llm(byte_checkpoint: Path) -> Iterator[LLM]:
    with LLM(byte_checkpoint, max_num_seqs=4, max_model_len=64) as opened:
        yield opened
