"""What an engine's process and the one in front of it say arrives as it was said."""

from dataclasses import replace
from typing import Any, get_args

import pytest
from deepinfer_core.channel.frames import HEADER_BYTES
from deepinfer_core.channel.language import Language
from deepinfer_core.engine.grammar_request import GrammarRequest
from deepinfer_core.engine.outputs import TokenLogprob
from deepinfer_core.engine.request_options import RequestOptions
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.service.messages import (
    FRONT_LANGUAGE,
    Abort,
    Ended,
    Failed,
    Fault,
    Figure,
    Figures,
    FiguresAsked,
    FromEngine,
    Grown,
    Likelihood,
    LoadFailed,
    Loading,
    Ready,
    Start,
    StartedRow,
    StepDone,
    Stop,
    Submit,
    ToEngine,
)
from deepinfer_core.engine.service.requests import (
    asked,
    likelihood,
    submit_message,
    token_logprob,
)
from deepinfer_core.errors import RequestError
from deepinfer_core.interfaces.async_engine import AbortedBy, EngineFacts, GenerateRequest
from deepinfer_core.telemetry.progress import PhaseAdvanced, PhaseFinished, PhaseStarted
from hypothesis import given
from hypothesis import strategies as st

ENGINE_LANGUAGE = FRONT_LANGUAGE.reversed()

FACTS = EngineFacts(
    model="m",
    tokenizer_json='{"a": "é"}',
    max_model_len=1 << 20,
    vocabulary=129_280,
    grammar_kinds=("ebnf",),
    components={"sampler": "core.cpu"},
    report={"memory": {"blocks": 3}, "share": 0.5},
)

numbers = st.integers(0, (1 << 64) - 1)
token_ids = st.integers(0, (1 << 32) - 1)
logs = st.floats(max_value=0, allow_nan=False)
likelihoods = st.builds(
    Likelihood, token_ids, logs, logs, st.lists(st.tuples(token_ids, logs), max_size=3).map(tuple)
)
faults = st.builds(Fault, st.text(max_size=9), st.text(max_size=9), st.text(max_size=9))
grown = st.builds(
    Grown,
    numbers,
    st.lists(token_ids, max_size=5).map(tuple),
    st.text(max_size=9),
    st.lists(likelihoods, max_size=3).map(tuple),
)
ended = st.builds(
    Ended,
    numbers,
    st.sampled_from(("stop", "length", "abort", "error")),
    *[st.integers(0, 1 << 40)] * 5,
    st.floats(0, 1e9),
    st.none() | st.lists(st.none() | likelihoods, max_size=3).map(tuple),
    st.sampled_from((None, *get_args(AbortedBy))),
)
steps = st.builds(
    StepDone,
    st.lists(st.builds(StartedRow, numbers, numbers, numbers), max_size=3),
    st.lists(grown, max_size=3),
    st.lists(ended, max_size=3),
    st.lists(st.builds(Failed, numbers, faults), max_size=3),
)


def crossed(language: Language[Any, Any], message: object) -> object:
    return language.reversed().unpack(memoryview(language.pack(message))[HEADER_BYTES:])


@given(steps)
def test_a_step_arrives_as_it_was_sent(step: StepDone) -> None:
    assert crossed(ENGINE_LANGUAGE, step) == step


@pytest.mark.parametrize(
    "message",
    [
        Ready(FACTS),
        LoadFailed(Fault("config_error", "a", "b")),
        Loading(started=PhaseStarted(phase="a", total=None, unit="bytes")),
        Loading(advanced=PhaseAdvanced(phase="a", done=1, total=2, detail="b")),
        Loading(finished=PhaseFinished(phase="a", done=1, elapsed_s=0.5, outcome="failed")),
        Figures(7, [Figure("a", ("b", "c"), 0.5, ()), Figure("d", (), 2.0, (1, 0))]),
    ],
    ids=lambda message: type(message).__name__,
)
def test_each_message_of_the_engine_arrives_as_it_was_sent(message: FromEngine) -> None:
    assert crossed(ENGINE_LANGUAGE, message) == message


@pytest.mark.parametrize(
    "message",
    [
        Start(settings="{}", path=["", "/a"]),
        Submit(1, b"\x00\x01", {"seed": (1 << 64) - 1, "stop": ["a"]}, "é", -16, None),
        Abort(3, "operator"),
        FiguresAsked(4),
        Stop("why"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_each_message_of_the_front_arrives_as_it_was_sent(message: ToEngine) -> None:
    assert crossed(FRONT_LANGUAGE, message) == message


biases = st.dictionaries(token_ids, st.floats(-100, 100), max_size=3)
texts = st.lists(st.text(min_size=1, max_size=5), max_size=3)
words = st.lists(st.text(min_size=1, max_size=5).filter(str.strip), max_size=3)
alternatives = st.booleans() | st.integers(0, 20) | st.none()
params = st.builds(
    SamplingParams,
    temperature=st.floats(0, 3),
    top_p=st.floats(0.01, 1),
    top_k=st.just(-1) | st.integers(1, 99),
    min_p=st.floats(0, 0.99),
    repetition_penalty=st.floats(0.5, 2),
    frequency_penalty=st.floats(-2, 2),
    presence_penalty=st.floats(-2, 2),
    logit_bias=st.none() | biases,
    allowed_token_ids=st.none() | st.lists(token_ids, min_size=1, max_size=4),
    bad_words=st.none() | words,
    bad_words_ids=st.none() | st.lists(st.lists(token_ids, min_size=1, max_size=3), max_size=3),
    max_tokens=st.integers(9, 99),
    min_tokens=st.integers(0, 9),
    first_n_token_no_eos=st.integers(0, 9),
    seed=st.none() | numbers,
    stop=st.none() | st.text(min_size=1, max_size=5) | texts,
    stop_token_ids=st.none() | st.lists(token_ids, max_size=3),
    include_stop_str_in_output=st.booleans(),
    ignore_eos=st.booleans(),
    skip_special_tokens=st.booleans(),
    logprobs=alternatives,
    top_logprobs=st.integers(0, 20),
    prompt_logprobs=alternatives,
    golden_token_ids=st.none() | st.lists(token_ids, max_size=3),
)


def request_of(params: SamplingParams, prompt: tuple[int, ...] = (1,)) -> GenerateRequest:
    return GenerateRequest(
        request_id="a",
        prompt_token_ids=prompt,
        params=params,
        cache_salt="salt",
        priority=-3,
        timeout_s=1.5,
    )


def arrived(request: GenerateRequest) -> tuple[tuple[int, ...], SamplingParams, RequestOptions]:
    message = crossed(FRONT_LANGUAGE, submit_message(5, request))
    assert isinstance(message, Submit)
    assert message.number == 5
    return asked(message)


@pytest.mark.parametrize(("named", "found"), [("chat", "chat"), (None, "agent")])
def test_the_class_of_a_request_arrives(named: str | None, found: str) -> None:
    _, _, options = arrived(replace(request_of(SamplingParams()), retention=named))
    assert options.retention == found


@given(params, st.lists(token_ids, max_size=5).map(tuple))
def test_a_request_arrives_as_it_was_asked(params: SamplingParams, prompt: tuple[int, ...]) -> None:
    found_prompt, found, options = arrived(request_of(params, prompt))
    assert found_prompt == prompt
    assert found == params
    # 0 and False are equal, and mean different things.
    assert (found.alternatives, found.prompt_alternatives) == (
        params.alternatives,
        params.prompt_alternatives,
    )
    assert options == RequestOptions(cache_salt="salt", priority=-3, timeout_s=1.5)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(grammar={"kind": "json_object"}),
        SamplingParams(
            grammar=GrammarRequest(
                kind="ebnf", grammar="r ::= []", root="r", trigger_token_ids=[7], bound_token_id=8
            )
        ),
        SamplingParams(so_args={"schema_type": "regex", "schema": "a+"}),
    ],
)
def test_a_grammar_arrives_as_it_was_asked(params: SamplingParams) -> None:
    _, found, _ = arrived(request_of(params))
    assert found.grammar_request == params.grammar_request


@pytest.mark.parametrize("ids", [(-1,), (1 << 32,), (1.5,), ("a",), (None,)])
def test_what_is_no_token_id_is_refused_by_the_front(ids: tuple[Any, ...]) -> None:
    with pytest.raises(RequestError, match="no token id"):
        submit_message(1, request_of(SamplingParams(), ids))


def test_a_damaged_prompt_is_refused_by_the_engine() -> None:
    with pytest.raises(RequestError, match="5 bytes"):
        asked(Submit(1, b"12345", {}, "", 0, None))


@given(likelihoods)
def test_a_log_probability_arrives_as_it_was_sent(sent: Likelihood) -> None:
    logprob = token_logprob(sent)
    assert isinstance(logprob, TokenLogprob)
    assert likelihood(logprob) == sent
