"""Requests that join a stream while it runs."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.outputs import Completion
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.stream import Router, Stream
from deepinfer_core.errors import EngineError, RequestError

MakeEngine = Callable[..., Engine]
PARAMS = SamplingParams(max_tokens=3, seed=1)


def open_stream(engine: Engine, *prompts: list[int]) -> Stream:
    router = Router(engine, lambda text: [0], lambda update: None)
    return Stream(router, [(prompt, PARAMS) for prompt in prompts])


def drain(stream: Stream) -> dict[int, Completion]:
    return {delta.index: delta.completion for delta in stream if delta.completion is not None}


def test_an_added_request_gets_what_it_gets_from_the_start(make_engine: MakeEngine) -> None:
    expected = drain(open_stream(make_engine(), [10, 11], [20]))
    stream = open_stream(make_engine(), [10, 11])
    next(stream)
    assert stream.add([20], PARAMS) == 1
    found = drain(stream)
    assert found[0].token_ids == expected[0].token_ids
    assert found[1].token_ids == expected[1].token_ids


def test_an_empty_stream_runs_what_is_added_before_the_first_delta(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    stream = open_stream(engine)
    assert [stream.add([10], PARAMS), stream.add([20], PARAMS)] == [0, 1]
    assert len(engine.batch) == 0
    assert sorted(drain(stream)) == [0, 1]


def test_a_request_can_be_added_at_the_last_delta(make_engine: MakeEngine) -> None:
    stream = open_stream(make_engine(), [10])
    while next(stream).completion is None:
        pass
    stream.add([20], PARAMS)
    assert list(drain(stream)) == [1]


def test_a_refused_request_that_is_added_fails_alone(make_engine: MakeEngine) -> None:
    stream = open_stream(make_engine(), [10])
    stream.add([], PARAMS)
    found = drain(stream)
    assert found[1].error is not None
    assert found[0].error is None


@pytest.mark.parametrize("ending", ["end", "close", "close before the first delta"])
def test_nothing_can_be_added_to_a_stream_that_has_ended(
    make_engine: MakeEngine, ending: str
) -> None:
    stream = open_stream(make_engine(), [10])
    if ending == "end":
        drain(stream)
    elif ending == "close":
        next(stream)
    if ending != "end":
        stream.close()
    with pytest.raises(EngineError, match="this stream has ended"):
        stream.add([20], PARAMS)


def test_closing_ends_added_requests_too(make_engine: MakeEngine) -> None:
    engine = make_engine()
    stream = open_stream(engine, [10])
    next(stream)
    stream.add([20], PARAMS)
    next(stream)
    stream.close()
    assert len(engine.batch) == 0
    engine.check_integrity()


def test_a_token_id_too_long_to_be_written_fails_alone(make_engine: MakeEngine) -> None:
    found = drain(open_stream(make_engine(), [10**5000], [10]))
    assert isinstance(found[0].error, RequestError)
    assert found[1].error is None


@pytest.mark.parametrize("began", [True, False])
def test_a_stream_of_a_closed_router_raises_and_keeps_no_engine_alive(
    make_engine: MakeEngine, began: bool
) -> None:
    engine = make_engine()
    router = Router(engine, lambda text: [0], lambda update: None)
    stream = Stream(router, [([10], PARAMS)])
    if began:
        next(stream)
    held = weakref.ref(engine)
    del engine
    router.close("closed")
    gc.collect()
    assert held() is None
    with pytest.raises(EngineError, match="closed"):
        next(stream)


def test_closing_gives_weights_and_caches_back_while_the_llm_is_still_named(
    byte_checkpoint: Path,
) -> None:
    llm = LLM(byte_checkpoint, max_model_len=128)
    held = weakref.ref(llm.engine.runner)
    llm.close()
    gc.collect()
    assert held() is None
