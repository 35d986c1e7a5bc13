"""May a request go on from a response that was stored, and from no other?"""

from typing import Any

import pytest
from deepinfer_recipe_bridge.options import ResponsesOptions
from deepinfer_recipe_bridge.responses import Responses
from deepinfer_recipe_bridge.stored import StoredResponse, StoredResponses
from scripted import EOS, MODEL, THINK_END, Reply, ScriptedEngine, ask, tokens_of

ONE = "/v1/responses/{response_id}"


def storing(most: int = 8, most_bytes: int = 2**20) -> Responses:
    return Responses(ResponsesOptions(store_responses=most, store_bytes=most_bytes))


def respond(protocol: Responses, engine: ScriptedEngine | None = None, **fields: Any) -> Reply:
    key = fields.pop("key", "")
    engine = engine or ScriptedEngine(
        steps=[tokens_of("so"), [THINK_END], tokens_of("a fox"), [EOS]]
    )
    body = {"model": MODEL, "input": "hi"} | fields
    return ask(protocol, body, engine, key_label=key)


def one(protocol: Responses, method: str, name: str, key: str = "") -> Reply:
    return ask(protocol, {}, at=f"{method} {ONE}", key_label=key, path_values={"response_id": name})


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_goes_on_from_a_stored_response(stream: bool) -> None:
    protocol = storing()
    first = respond(protocol, stream=stream)
    shown = first.events[-1][1]["response"] if stream else first.body
    engine, whole = ScriptedEngine(steps=[[EOS]]), ScriptedEngine(steps=[[EOS]])
    second = respond(protocol, engine, input="and?", previous_response_id=shown["id"])
    turns = [
        {"role": "user", "content": "hi"},
        *shown["output"],
        {"role": "user", "content": "and?"},
    ]
    respond(protocol, whole, input=turns)
    assert engine.requests[0].prompt_token_ids == whole.requests[0].prompt_token_ids
    assert "a fox" in str(shown["output"])
    assert second.body["previous_response_id"] == shown["id"]
    assert second.body["store"] is True


def test_a_chain_of_responses_is_followed_to_its_beginning() -> None:
    protocol = storing()
    first = respond(protocol, input="one")
    second = respond(protocol, input="two", previous_response_id=first.body["id"])
    engine = ScriptedEngine(steps=[[EOS]])
    respond(protocol, engine, input="three", previous_response_id=second.body["id"])
    prompt = bytes(token - 9 for token in engine.requests[0].prompt_token_ids if token >= 9)
    places = [prompt.index(word) for word in (b"one", b"two", b"three")]
    assert places == sorted(places)


@pytest.mark.parametrize("stream", [False, True])
def test_events_and_responses_say_that_they_are_stored(stream: bool) -> None:
    reply = respond(storing(), stream=stream)
    shown = reply.events[0][1]["response"] if stream else reply.body
    assert shown["store"] is True
    assert respond(Responses(ResponsesOptions())).body["store"] is False


def test_a_stored_response_can_be_read_and_deleted() -> None:
    protocol = storing()
    first = respond(protocol)
    name = first.body["id"]
    assert one(protocol, "GET", name).body == first.body
    assert one(protocol, "DELETE", name).body == {
        "id": name,
        "object": "response",
        "deleted": True,
    }
    assert one(protocol, "GET", name).status == 404
    assert one(protocol, "DELETE", name).status == 404
    assert one(protocol, "GET", name).body["error"]["code"] == "not_found"


def test_nobody_sees_the_responses_of_another_key() -> None:
    protocol = storing()
    name = respond(protocol, key="alice").body["id"]
    assert one(protocol, "GET", name, key="bob").status == 404
    assert one(protocol, "DELETE", name, key="bob").status == 404
    reply = respond(protocol, key="bob", previous_response_id=name)
    assert reply.status == 400
    assert reply.body["error"]["code"] == "previous_response_not_found"
    assert one(protocol, "GET", name, key="alice").status == 200


def test_a_response_that_is_not_to_be_stored_is_not() -> None:
    protocol = storing()
    reply = respond(protocol, store=False)
    assert reply.body["store"] is False
    assert one(protocol, "GET", reply.body["id"]).status == 404


def test_without_a_store_there_is_none_to_read() -> None:
    protocol = Responses(ResponsesOptions())
    assert one(protocol, "GET", respond(protocol).body["id"]).status == 404


def stored(text: str, history: str = "") -> StoredResponse:
    return StoredResponse("", text, history)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_the_oldest_are_forgotten_when_there_are_too_many(most: int) -> None:
    store = StoredResponses(most, 1000)
    for name in "abc":
        store.put(name, stored("x"))
    assert [name for name in "abc" if store.get(name, "")] == list("abc"[-most:])


def test_the_oldest_are_forgotten_when_they_take_too_much() -> None:
    store = StoredResponses(9, 40)
    store.put("a", stored("xxx", "xx"))
    store.put("b", stored("xxxxx"))
    assert store.get("a", "")
    store.put("c", stored("x"))
    assert not store.get("a", "")
    assert store.get("b", "")
    store.remove("b", "")
    store.put("d", stored("x" * 9))
    assert store.get("c", "")
    store.put("e", stored("x" * 11))
    assert not any(store.get(name, "") for name in "cde")
