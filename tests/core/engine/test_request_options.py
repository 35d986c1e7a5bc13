"""What a caller may ask of the treatment of a request."""

from collections.abc import Callable
from typing import Any

import pytest
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.prompts import pair_options
from deepinfer_core.engine.request_options import DEFAULT_OPTIONS, RequestOptions
from deepinfer_core.engine.router import Router
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.stream import Stream
from deepinfer_core.errors import RequestError

MakeEngine = Callable[..., Engine]
PARAMS = SamplingParams(max_tokens=2, seed=1)


def test_the_defaults_ask_for_nothing() -> None:
    options = RequestOptions()
    assert (options.priority, options.timeout_s, options.cache_salt) == (0, None, "")
    assert options == DEFAULT_OPTIONS


@pytest.mark.parametrize(
    "fields",
    [
        {"priority": -16},
        {"priority": 16},
        {"timeout_s": 1e-9},
        {"timeout_s": 3},
        {"cache_salt": "é" * 256},
        {"retention": "a_class_of_ours"},
    ],
)
def test_values_at_the_edge_of_their_range_are_kept(fields: dict[str, Any]) -> None:
    options = RequestOptions(**fields)
    assert {name: getattr(options, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"priority": -17}, "priority is -17"),
        ({"priority": 17}, "priority is 17"),
        ({"priority": True}, "priority is True"),
        ({"priority": 0.5}, "priority is 0.5"),
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"timeout_s": -1.0}, "timeout_s is -1.0"),
        ({"timeout_s": float("nan")}, "timeout_s is nan"),
        ({"timeout_s": float("inf")}, "timeout_s is inf"),
        ({"timeout_s": "3"}, "timeout_s is '3'"),
        ({"timeout_s": False}, "timeout_s is False"),
        ({"cache_salt": "a" * 257}, "cache_salt is 'aaa"),
        ({"cache_salt": None}, "cache_salt is None"),
        ({"cache_salt": b"a"}, "cache_salt is b'a'"),
        ({"cache_salt": "\ud800"}, "cache_salt is"),
        ({"retention": ""}, "retention is ''"),
        ({"retention": "Chat"}, "retention is 'Chat'"),
        ({"retention": None}, "retention is None"),
    ],
)
def test_other_values_are_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        RequestOptions(**fields)


def test_options_cannot_be_changed_once_checked() -> None:
    with pytest.raises(AttributeError):
        RequestOptions().priority = 99  # type: ignore[misc]


def test_one_stands_for_all_and_several_for_one_each() -> None:
    one, other = RequestOptions(priority=1), RequestOptions(priority=2)
    assert pair_options(None, 2) == [DEFAULT_OPTIONS, DEFAULT_OPTIONS]
    assert pair_options(one, 2) == [one, one]
    assert pair_options([one, other], 2) == [one, other]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([DEFAULT_OPTIONS], "1 options were given for 2 prompts"),
        ([DEFAULT_OPTIONS, PARAMS], r"options\[1\] is a SamplingParams"),
        (7, "options is of type int"),
    ],
)
def test_options_that_fit_no_call_are_refused(options: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        pair_options(options, 2)


class Recorder:
    """Notes what an engine is asked, and asks it."""

    def __init__(self, engine: Engine) -> None:
        self.asked: list[tuple[int, RequestOptions, int | None]] = []
        self._submit = engine.submit
        engine.submit = self.submit  # type: ignore[method-assign]

    def submit(self, index: int, ids: Any, params: SamplingParams, **options: Any) -> int:
        self.asked.append((options["sample"], options["options"], options["follows"]))
        return self._submit(index, ids, params, **options)


def test_a_stream_hands_the_options_of_each_request_to_the_engine(make_engine: MakeEngine) -> None:
    engine = make_engine()
    recorder, urgent = Recorder(engine), RequestOptions(priority=3)
    router = Router(engine, lambda text: [0], lambda update: None)
    stream = Stream(router, [([10], PARAMS, urgent)])
    stream.add([10], PARAMS)
    stream.add([10], PARAMS, urgent)
    list(stream)
    assert [options for _, options, _ in recorder.asked] == [urgent, DEFAULT_OPTIONS, urgent]


def test_further_samples_follow_the_first_one(make_engine: MakeEngine) -> None:
    engine = make_engine()
    recorder = Recorder(engine)
    router = Router(engine, lambda text: [0], lambda update: None)
    three = SamplingParams(n=3, max_tokens=2, seed=1)
    list(Stream(router, [([10], PARAMS), ([20], three), ([], three)]))
    followed = [(sample, follows) for sample, _, follows in recorder.asked]
    # The empty prompt is refused at its first sample; there is nothing to follow then.
    assert followed == [(0, None), (0, None), (1, 2), (2, 2), (0, None)]


@pytest.mark.parametrize("call", ["generate", "stream", "chat"])
def test_every_call_of_an_llm_takes_options(
    call: str, monkeypatch: pytest.MonkeyPatch, make_engine: MakeEngine
) -> None:
    engine = make_engine()
    recorder, urgent = Recorder(engine), RequestOptions(priority=3)
    llm = LLM.__new__(LLM)
    llm._router = Router(engine, lambda text: [10], lambda update: None)
    monkeypatch.setattr(LLM, "engine", engine)
    monkeypatch.setattr(LLM, "encode_chat", lambda *_: [10])
    if call == "chat":
        llm.chat([], PARAMS, options=urgent)
    else:
        list(getattr(llm, call)(["a"], PARAMS, options=urgent))
    assert [options for _, options, _ in recorder.asked] == [urgent]


def test_a_class_of_traffic_that_no_store_was_given_is_refused(make_engine: MakeEngine) -> None:
    engine = make_engine(retention_classes=frozenset({"agent", "yearly"}))
    engine.submit(0, [1], PARAMS, options=RequestOptions(retention="yearly"))
    with pytest.raises(RequestError, match='"chat"'):
        engine.submit(0, [1], PARAMS, options=RequestOptions(retention="chat"))
