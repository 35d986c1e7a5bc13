"""Requests that join a stream while it runs, and ones that are ended before they run."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from deepinfer_core.engine.core import Engine, Update
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.outputs import Completion
from deepinfer_core.engine.router import Router
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.stream import Stream
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


def reasons(stream: Stream) -> dict[tuple[int, int], tuple[str, int]]:
    """Why each answer ended, and with how many tokens."""
    ended = [delta.completion for delta in stream if delta.completion is not None]
    return {(done.index, done.sample): (done.finish_reason, len(done.token_ids)) for done in ended}


def test_a_request_that_is_aborted_before_the_first_delta_is_ended(make_engine: MakeEngine) -> None:
    engine = make_engine()
    stream = open_stream(engine, [10], [20])
    stream.abort(0)
    assert reasons(stream) == {(0, 0): ("abort", 0), (1, 0): ("length", 3)}
    engine.check_integrity()


def test_an_added_request_that_is_aborted_before_it_is_queued_is_ended(
    make_engine: MakeEngine,
) -> None:
    stream = open_stream(make_engine(), [10])
    next(stream)
    stream.abort(stream.add([20], PARAMS))
    assert reasons(stream) == {(0, 0): ("length", 3), (1, 0): ("abort", 0)}


def test_one_answer_can_be_aborted_before_the_first_delta(make_engine: MakeEngine) -> None:
    router = Router(make_engine(), lambda text: [0], lambda update: None)
    stream = Stream(router, [([10], SamplingParams(n=3, max_tokens=3, seed=1))])
    stream.abort(0, 1)
    wanted = {(0, 0): ("length", 3), (0, 1): ("abort", 0), (0, 2): ("length", 3)}
    assert reasons(stream) == wanted


def test_a_bad_request_that_is_aborted_before_the_first_delta_is_refused(
    make_engine: MakeEngine,
) -> None:
    stream = open_stream(make_engine(), [])
    stream.abort(0)
    assert reasons(stream) == {(0, 0): ("error", 0)}


@pytest.mark.parametrize("index", [-1, 1, 2])
def test_aborting_what_was_not_asked_for_does_nothing_to_what_comes_later(
    make_engine: MakeEngine, index: int
) -> None:
    stream = open_stream(make_engine(), [10])
    stream.abort(index)
    stream.add([20], PARAMS)
    assert reasons(stream) == {(0, 0): ("length", 3), (1, 0): ("length", 3)}


def test_aborting_what_has_ended_does_nothing(make_engine: MakeEngine) -> None:
    stream = open_stream(make_engine(), [10], [20])
    assert len(reasons(stream)) == 2
    stream.abort(0)
    assert list(stream) == []


def test_a_step_that_fails_as_a_whole_is_raised_and_told_to_the_other_streams(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    router = Router(engine, lambda text: [0], lambda update: None)
    other, mine = (Stream(router, [([10], PARAMS)]) for _ in range(2))
    next(other)

    def fail() -> None:
        raise ValueError("of a bug")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "step", fail)
        with pytest.raises(ValueError, match="of a bug"):
            list(mine)
    with pytest.raises(EngineError, match=r"a step failed \(ValueError: of a bug\)"):
        list(other)
    assert len(engine.batch) == 0
    assert reasons(Stream(router, [([10], PARAMS)])) == {(0, 0): ("length", 3)}


def test_observers_are_told_when_every_stream_has_its_own(make_engine: MakeEngine) -> None:
    """One that asks for something itself then takes nobody's tokens."""
    engine, seen = make_engine(), []

    def finished(update: Update) -> None:
        if not seen:
            seen.append(update)
            seen.append(reasons(Stream(router, [([30], PARAMS)])))

    router = Router(engine, lambda text: [0], finished)
    longer = SamplingParams(max_tokens=9, seed=1)
    deltas = list(Stream(router, [([10], PARAMS), ([20], longer)]))
    others = [delta for delta in deltas if delta.index == 1]
    assert others[-1].completion is not None
    tokens = tuple(token for delta in others for token in delta.token_ids)
    assert tokens == others[-1].completion.token_ids
    assert seen[1] == {(0, 0): ("length", 3)}


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


def test_closing_the_router_closes_the_engine(make_engine: MakeEngine) -> None:
    closed: list[str] = []
    engine = make_engine()
    engine.runner.close = lambda: closed.append("runner")  # type: ignore[method-assign]
    router = Router(engine, lambda text: [0], lambda update: None)
    router.close("closed")
    router.close("closed")
    assert closed == ["runner"]


def test_closing_gives_weights_and_caches_back_while_the_llm_is_still_named(
    byte_checkpoint: Path,
) -> None:
    llm = LLM(byte_checkpoint, max_model_len=128)
    held = weakref.ref(llm.engine.runner)
    llm.close()
    gc.collect()
    assert held() is None
