"""Text completions, whole and in events, over an engine that answers by a script."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from deepinfer_core.errors import EngineError, EngineUnavailable, RequestError
from deepinfer_core.interfaces.protocol import EventAnswer
from deepinfer_core.testing.byte_tokenizer import FIRST_BYTE, byte_tokens

BEGIN, END = 0, 1
A = FIRST_BYTE + ord("a")


def test_a_completion_has_the_public_form(service: Any) -> None:
    found = service.complete(max_tokens=20)
    assert isinstance(found.pop("created"), int)
    assert found == {
        "id": "cmpl-r",
        "object": "text_completion",
        "model": "fake",
        "choices": [{"index": 0, "text": "naïve fox", "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 11,
            "total_tokens": 14,
            "prompt_tokens_details": {"cached_tokens": 0},
            "prompt_cache_hit_tokens": 0,
            "prompt_cache_miss_tokens": 3,
        },
    }


def test_the_prompt_of_a_text_begins_a_sequence_and_has_no_other_control_token(
    service: Any,
) -> None:
    service.complete("<think><｜User｜>")
    [request] = service.engine.requests
    assert request.prompt_token_ids == (BEGIN, *byte_tokens("<think><｜User｜>"))


def test_token_ids_are_taken_as_they_are(service: Any) -> None:
    service.complete([A, 3, A])
    assert service.engine.requests[0].prompt_token_ids == (A, 3, A)


def test_sixteen_tokens_are_drawn_unless_the_body_says_how_many(service_over: Any) -> None:
    service = service_over(lambda request: "a" * 40)
    [choice] = service.complete()["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("a" * 16, "length")


@pytest.mark.parametrize("prompts", [["a", "b"], [[A], "b"]])
def test_every_prompt_has_n_choices_in_order(service_over: Any, prompts: list[Any]) -> None:
    service = service_over(lambda r: f"{chr(r.prompt_token_ids[-1] - FIRST_BYTE)}{r.params.seed}")
    found = service.complete(prompts, n=2, seed=4, max_tokens=64)
    seeds = [request.params.seed for request in service.engine.requests]
    assert [choice["index"] for choice in found["choices"]] == [0, 1, 2, 3]
    assert [c["text"] for c in found["choices"]] == [f"{p}{s}" for p in "ab" for s in seeds[:2]]
    assert seeds[0] == 4
    assert len(set(seeds)) == 2
    assert [request.request_id for request in service.engine.requests] == [
        "r-0", "r-1", "r-2", "r-3",
    ]  # fmt: skip


def test_a_prompt_counts_once_in_the_usage_however_many_choices_it_has(service: Any) -> None:
    usage = service.complete(["a", "bcd"], n=3, max_tokens=2)["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (2 + 4, 6 * 2)


def test_a_call_with_many_choices_has_few_in_the_engine_at_once(service: Any) -> None:
    service.complete(["a"] * 100, max_tokens=3)
    assert len(service.engine.requests) == 100
    assert service.engine.most_in_work == 32


def test_cached_tokens_are_in_the_usage(service: Any) -> None:
    prompt = [A] * 20
    service.complete(prompt)
    usage = service.complete(prompt)["usage"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 16}
    assert (usage["prompt_cache_hit_tokens"], usage["prompt_cache_miss_tokens"]) == (16, 4)


def test_prefixes_are_shared_within_a_key_and_a_user_only(service: Any) -> None:
    for label, user in (("", None), ("k", None), ("k", "u"), ("ku", None), ("k", "u")):
        service.json("/v1/completions", {"prompt": "a", "user": user}, key_label=label)
    salts = [request.cache_salt for request in service.engine.requests]
    assert salts[0] == ""
    assert salts[2] == salts[4]
    assert len(set(salts)) == 4
    assert max(map(len, salts)) <= 256


def test_a_user_of_513_bytes_is_refused(service: Any) -> None:
    service.complete(user="u" * 512)
    with pytest.raises(RequestError, match="user"):
        service.complete(user="u" * 513)


def test_an_echo_begins_with_the_prompt(service: Any) -> None:
    assert service.complete("so ", echo=True)["choices"][0]["text"] == "so naïve fox"
    ids = [BEGIN, *byte_tokens("so ")]
    assert service.complete(ids, echo=True)["choices"][0]["text"] == "so naïve fox"


def test_log_probabilities_point_into_the_text(service: Any) -> None:
    [choice] = service.complete(logprobs=2, max_tokens=20)["choices"]
    logprobs = choice["logprobs"]
    end = "<｜end▁of▁sentence｜>"
    assert logprobs["tokens"] == [
        "n", "a", "bytes:\\xc3", "bytes:\\xaf", *"ve fox", end,
    ]  # fmt: skip
    assert logprobs["text_offset"] == [0, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9]
    assert logprobs["token_logprobs"] == [-0.25] * 11
    assert [len(top) for top in logprobs["top_logprobs"]] == [2] * 11


def test_without_alternatives_each_token_lists_itself(service: Any) -> None:
    [choice] = service.complete(logprobs=0, max_tokens=1)["choices"]
    assert choice["logprobs"]["top_logprobs"] == [{"n": -0.25}]


def test_an_echo_with_log_probabilities_scores_the_prompt(service: Any) -> None:
    [choice] = service.complete("xy", echo=True, logprobs=1, max_tokens=1)["choices"]
    logprobs = choice["logprobs"]
    assert choice["text"] == "xyn"
    assert logprobs["tokens"] == ["<｜begin▁of▁sentence｜>", "x", "y", "n"]
    assert logprobs["token_logprobs"] == [None, -0.25, -0.25, -0.25]
    assert logprobs["top_logprobs"] == [None, {"x": -0.25}, {"y": -0.25}, {"n": -0.25}]
    assert logprobs["text_offset"] == [0, 0, 1, 2]


def test_no_tokens_and_an_echo_score_the_prompt_alone(service: Any) -> None:
    found = service.complete([A, A], echo=True, logprobs=1, max_tokens=0)
    [choice] = found["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("aa", "length")
    assert choice["logprobs"]["token_logprobs"] == [None, -0.25]
    assert found["usage"]["completion_tokens"] == 0
    assert found["usage"]["total_tokens"] == 2


def test_an_end_that_nobody_asked_for_is_no_reason(service_over: Any) -> None:
    service = service_over(lambda request: "")
    [choice] = service.complete(max_tokens=0)["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("", "length")


def test_prompts_are_not_scored_without_an_echo(service: Any) -> None:
    service.complete(logprobs=1)
    assert service.engine.requests[0].params.prompt_alternatives is None


def test_fields_of_a_draw_reach_the_engine(service: Any) -> None:
    service.complete(
        temperature=0.5, top_p=0.9, top_k=7, min_p=0.1, repetition_penalty=1.5, seed=9,
        presence_penalty=0.5, frequency_penalty=-0.5, logit_bias={"12": -3}, min_tokens=2,
        stop=["x"], stop_token_ids=[20], ignore_eos=True, user="u",
    )  # fmt: skip
    params = service.engine.requests[0].params
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.5, 0.9, 7, 0.1)
    assert (params.repetition_penalty, params.seed) == (1.5, 9)
    assert (params.presence_penalty, params.frequency_penalty) == (0.5, -0.5)
    assert (params.biases, params.min_tokens) == (((12, -3.0),), 2)
    assert (params.stop_strings, params.stop_ids, params.ignore_eos) == (("x",), (20,), True)


@pytest.mark.parametrize(
    ("fields", "grammar", "seed"),
    [
        ({"so_args": {"schema_type": "regex", "schema": "a"}}, "regex", None),
        ({"guided_regex": "a", "seq_seed": 5}, "regex", 5),
        ({"seed": 5, "seq_seed": 5}, None, 5),
    ],
)
def test_other_names_of_a_field_mean_the_same_for_every_choice(
    service_over: Any, fields: dict[str, Any], grammar: str | None, seed: int | None
) -> None:
    service = service_over(grammar_kinds=("regex",))
    assert len(service.complete(n=3, **fields)["choices"]) == 3
    params = [request.params for request in service.engine.requests]
    assert [one.grammar_request and one.grammar_request.kind for one in params] == [grammar] * 3
    assert params[0].seed == seed
    assert len({one.seed for one in params}) == (1 if seed is None else 3)


def test_a_grammar_reaches_the_engine_and_the_notes(service_over: Any) -> None:
    service = service_over(grammar_kinds=("regex",))
    service.complete(grammar={"kind": "regex", "grammar": "a+"})
    assert service.engine.requests[0].params.grammar_request.text.text == "a+"
    assert service.notes.constraint == "regex"


def test_events_have_the_public_form_and_the_same_text(service: Any) -> None:
    events = service.events(max_tokens=20)
    assert "".join(event["choices"][0]["text"] for event in events) == "naïve fox"
    assert {event["id"] for event in events} == {"cmpl-r"}
    assert {event["object"] for event in events} == {"text_completion"}
    reasons = [event["choices"][0]["finish_reason"] for event in events]
    assert reasons == [None] * (len(events) - 1) + ["stop"]
    assert all("usage" not in event for event in events)


def test_usage_in_events_is_null_until_the_last_one(service: Any) -> None:
    *events, last = service.events(stream_options={"include_usage": True}, max_tokens=3)
    assert [event["usage"] for event in events] == [None] * len(events)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 3
    assert last["usage"] == service.complete(max_tokens=3)["usage"]


def test_events_of_several_choices_are_told_apart_by_index(service_over: Any) -> None:
    service = service_over(lambda r: "abcdef"[: r.prompt_token_ids[-1] - FIRST_BYTE - 48])
    events = service.events(["1", "3", "2"])
    texts = {0: "", 1: "", 2: ""}
    for event in events:
        [choice] = event["choices"]
        texts[choice["index"]] += choice["text"]
    assert texts == {0: "a", 1: "abc", 2: "ab"}


def test_events_list_the_log_probabilities_of_a_whole_answer(service: Any) -> None:
    fields = {"echo": True, "logprobs": 1, "max_tokens": 20}
    [whole] = service.complete("xy", **fields)["choices"]
    parts = [event["choices"][0] for event in service.events("xy", **fields)]
    assert "".join(part["text"] for part in parts) == whole["text"]
    for name, values in whole["logprobs"].items():
        assert [value for part in parts for value in part["logprobs"][name]] == values


def test_offsets_go_on_from_event_to_event(service: Any) -> None:
    [whole] = service.complete(logprobs=1, max_tokens=20)["choices"]
    parts = [event["choices"][0] for event in service.events(logprobs=1, max_tokens=20)]
    offsets = [offset for part in parts for offset in part["logprobs"]["text_offset"]]
    assert len(parts) > 2
    assert offsets == whole["logprobs"]["text_offset"]


def test_an_echo_comes_before_the_first_token(service: Any) -> None:
    first, *_ = service.events("so ", echo=True)
    assert first["choices"][0]["text"] == "so "


def test_closing_a_stream_ends_every_request_of_the_call(service: Any) -> None:
    async def run() -> None:
        body = {"prompt": ["a", "b", "c"], "n": 2, "stream": True}
        answer = await service.call("POST", "/v1/completions", body)
        assert isinstance(answer, EventAnswer)
        await anext(answer.events)
        assert service.engine.in_work > 1
        await answer.events.aclose()
        assert service.engine.in_work == 0

    asyncio.run(run())


def test_a_failing_request_ends_the_others_of_its_call(service_over: Any) -> None:
    def failure(request: Any, count: int) -> EngineError | None:
        return EngineError("broken") if request.request_id == "r-1" and count == 2 else None

    service = service_over(failure=failure)
    with pytest.raises(EngineError, match="broken"):
        service.complete(["a", "b", "c"])
    assert service.engine.in_work == 0
    assert set(service.engine.outcomes.values()) == {"failed", "closed"}


@pytest.mark.parametrize("prompt", ["a", ["a", "b"]])
def test_a_call_ends_from_outside_under_its_own_id(service: Any, prompt: Any) -> None:
    async def run() -> dict[str, Any]:
        body = {"prompt": prompt}
        service.engine.pause()
        waiting = asyncio.create_task(service.call("POST", "/v1/completions", body))
        while not service.engine.in_work:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        ended = await service.call("POST", "/abort", {"request_id": "r"}, request_id="x")
        service.engine.resume()
        assert json.loads(ended.content) == {"aborted": True}
        found: dict[str, Any] = json.loads((await waiting).content)
        return found

    found = asyncio.run(run())
    assert {choice["finish_reason"] for choice in found["choices"]} == {"abort"}


def test_ending_what_is_not_in_work_says_so(service: Any) -> None:
    assert service.json("/abort", {"request_id": "r\ud800"}) == {
        "aborted": False,
    }
    with pytest.raises(RequestError, match="request_id is missing"):
        service.json("/abort", {})
    with pytest.raises(RequestError, match="request_id is 5") as caught:
        service.json("/abort", {"request_id": 5})
    assert "text" in str(caught.value.hint)


def test_a_limit_that_does_not_fit_is_refused_and_the_default_gives_way(
    service_over: Callable[..., Any],
) -> None:
    service = service_over(lambda request: "a" * 40, max_model_len=32)
    assert service.complete([A] * 22, max_tokens=10)["usage"]["completion_tokens"] == 10
    with pytest.raises(RequestError, match="max_tokens is 11"):
        service.complete([A] * 22, max_tokens=11)
    assert service.complete([A] * 31)["usage"]["completion_tokens"] == 1
    assert service.engine.requests[-1].params.max_tokens == 1
    with pytest.raises(RequestError, match="32"):
        service.complete([A] * 32)


def test_an_unknown_model_is_refused_and_an_alias_is_repeated(service: Any) -> None:
    assert service.complete(model="other")["model"] == "other"
    assert service.notes.model == "other"
    with pytest.raises(RequestError, match="'gpt'"):
        service.complete(model="gpt")
    assert service.notes.model == ""


def test_the_notes_say_what_a_call_was(service: Any) -> None:
    service.complete(max_tokens=3)
    notes = service.notes
    assert (notes.stream, notes.finish_reason) == (False, "length")
    assert (notes.prompt_tokens, notes.completion_tokens) == (3, 3)
    assert notes.queue_s is not None
    assert notes.first_token_s is not None
    assert 0 <= notes.queue_s <= notes.first_token_s


def test_a_gap_needs_a_tokenizer_with_its_tokens(service: Any) -> None:
    with pytest.raises(RequestError, match="fim"):
        service.complete(suffix="end")


def test_an_engine_that_is_not_loaded_refuses(service: Any) -> None:
    service.engine.become("loading")
    with pytest.raises(EngineUnavailable):
        service.complete()


def test_a_call_claims_one_sequence_for_each_choice(service: Any) -> None:
    service.complete("a")
    service.complete(["a", "b"], n=3)
    assert service.claimed == [1, 6]


@pytest.mark.parametrize(("samples", "is_direct"), [(1, True), (2, False)])
def test_tokens_of_an_only_choice_are_written_where_they_come(
    service_over: Any, samples: int, is_direct: bool
) -> None:
    service = service_over(lambda request: "so a fox")
    writes = service.writes(n=samples, max_tokens=20)
    text = "".join(
        choice["text"]
        for write in writes
        for event in write.decode().split("\n\n")[:-1]
        if event != "data: [DONE]"
        for choice in json.loads(event.removeprefix("data: "))["choices"]
        if choice["index"] == 0
    )
    assert text == "so a fox"
    assert (service.pulled < len(writes)) == is_direct


@pytest.mark.parametrize("with_usage", [False, True])
def test_events_of_text_are_alike_whichever_way_they_go(
    service_over: Any, with_usage: bool
) -> None:
    said = 'so "naïve"\n\\fox\x00'
    service = service_over(lambda request: said)
    fields = {"stream_options": {"include_usage": True}} if with_usage else {}
    *writes, _ = service.writes("ab", echo=True, max_tokens=40, **fields)
    assert service.pulled < len(writes)
    events = [event for write in writes for event in write.split(b"\n\n")[:-1]]
    found = [json.loads(event.removeprefix(b"data: ")) for event in events]
    texts = [one["choices"][0]["text"] for one in found]
    assert "".join(texts) == f"ab{said}"
    shown = [msgspec.json.encode(text) for text in texts]
    forms = {
        event.replace(b'"text":' + text, b'"text":...')
        for event, text in zip(events[:-1], shown[:-1], strict=True)
    }
    assert len(forms) == 1
    assert all(b'"text":' + text in event for event, text in zip(events, shown, strict=True))
    assert service.notes.first_token_s is not None


def test_what_is_drawn_beyond_a_limit_of_none_is_not_streamed(service: Any) -> None:
    events = service.events("so ", echo=True, max_tokens=0)
    assert "".join(event["choices"][0]["text"] for event in events) == "so "
