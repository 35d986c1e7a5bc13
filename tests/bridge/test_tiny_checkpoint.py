"""Do the protocols work with a trained checkpoint, its own tokenizer and real masks?"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from deepinfer_core.config import load_settings
from deepinfer_core.interfaces.async_engine import (
    Finished,
    GenerateRequest,
    Item,
    Started,
    Tokens,
)
from deepinfer_core.testing.fake_async_engine import FakeAsyncEngine
from deepinfer_recipe_bridge.chat import Chat
from deepinfer_recipe_bridge.codec import codec_of
from deepinfer_recipe_bridge.messages import Messages
from deepinfer_recipe_bridge.options import ChatOptions, MessagesOptions, ResponsesOptions
from deepinfer_recipe_bridge.responses import Responses
from scripted import ALL_KINDS, MODEL, ask

from deepinfer_core import AsyncLLM

tiny = pytest.importorskip("deepinfer_tiny", reason="nox -s bridge runs these")
llguidance = pytest.importorskip("llguidance", reason="nox -s bridge runs these")

CHAT = Chat(ChatOptions())
SAID = [{"role": "user", "content": "Tell me about a fox. json"}]
OFF = {"thinking": {"type": "disabled"}}


class TinyEngine(FakeAsyncEngine):
    """An engine in this process, whose answers are real."""

    def __init__(self, llm: AsyncLLM, tokenizer_json: str) -> None:
        super().__init__(
            model="tiny",
            tokenizer_json=tokenizer_json,
            max_model_len=1024,
            vocabulary=4096,
            grammar_kinds=ALL_KINDS,
        )
        self.llm = llm

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Item]:
        prompt = len(request.prompt_token_ids)
        async with await self.llm.submit(list(request.prompt_token_ids), request.params) as stream:
            yield Started(prompt, 0)
            async for delta in stream:
                if delta.token_ids:
                    yield Tokens(delta.token_ids, delta.text, delta.logprobs)
                if delta.completion is not None:
                    if delta.completion.error is not None:
                        raise delta.completion.error
                    yield Finished(
                        reason=delta.completion.finish_reason,
                        prompt_tokens=prompt,
                        cached_tokens=0,
                        completion_tokens=delta.completion.usage.completion_tokens,
                    )


@pytest.fixture(scope="module")
def engine() -> Iterator[TinyEngine]:
    folder = tiny.checkpoint_path()
    settings = {"model.path": str(folder), "components.grammar.use": "grammar.llguidance"}
    llm = AsyncLLM.from_settings(load_settings(None, api=settings))
    yield TinyEngine(llm, (folder / "tokenizer.json").read_text(encoding="utf-8"))
    asyncio.run(llm.close())


def answered(engine: TinyEngine, **fields: Any) -> dict[str, Any]:
    body = {"model": MODEL, "messages": SAID, "seed": 1, "max_tokens": 40, **OFF}
    reply = ask(CHAT, body | fields, engine)
    assert reply.status == 200, reply.raw
    found: dict[str, Any] = reply.body["choices"][0]
    return found


def test_a_text_comes_again_with_its_seed(engine: TinyEngine) -> None:
    first = answered(engine)
    assert first["message"]["content"]
    assert answered(engine) == first


def test_a_stream_says_the_same_as_a_whole_response(engine: TinyEngine) -> None:
    body = {"model": MODEL, "messages": SAID, "seed": 1, "max_tokens": 40, "stream": True, **OFF}
    *chunks, done = ask(CHAT, body, engine).events
    assert done[1] == "[DONE]"
    parts = [data["choices"][0]["delta"].get("content") or "" for _, data in chunks]
    assert "".join(parts) == answered(engine)["message"]["content"]


def test_no_answer_holds_a_control_token(engine: TinyEngine) -> None:
    codec = codec_of(engine.facts)
    for seed in range(4):
        found = answered(engine, seed=seed, temperature=2.0, logprobs=True)
        tokens = [one["token"] for one in found["logprobs"]["content"]]
        assert tokens
        assert not {codec.think_end, codec.dsml, "<think>", "<｜User｜>"} & set(tokens)


def test_json_of_a_schema_comes_out(engine: TinyEngine) -> None:
    schema = {
        "type": "object",
        "properties": {"age": {"type": "integer", "maximum": 120}},
        "required": ["age"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    found = answered(engine, response_format=form)
    assert found["finish_reason"] == "stop"
    assert json.loads(found["message"]["content"])["age"] <= 120


def test_json_goes_on_from_a_prefix(engine: TinyEngine) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": ["fox", "dog"]}}, "required": ["a"]}
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    for prefix, status in (('{"a": "f', 200), ('{"a": "x', 400)):
        said = [*SAID, {"role": "assistant", "content": prefix, "prefix": True}]
        body = {"model": MODEL, "messages": said, "response_format": form, **OFF}
        reply = ask(CHAT, body, engine)
        assert reply.status == status, reply.raw
        if status == 200:
            content = reply.body["choices"][0]["message"]["content"]
            assert json.loads(prefix + content)["a"] == "fox"
        else:
            assert reply.body["error"]["code"] == "unsupported_grammar"


def tool(**properties: Any) -> dict[str, Any]:
    root = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": "f", "parameters": root}}


def test_a_forced_call_comes_out_whole(engine: TinyEngine) -> None:
    tools = [tool(unit={"type": "string", "enum": ["C", "F"]}, n={"enum": [1, 2]})]
    found = answered(
        engine, tools=tools, tool_choice="required", parallel_tool_calls=False, max_tokens=150
    )
    assert found["finish_reason"] == "tool_calls"
    [call] = found["message"]["tool_calls"]
    arguments = json.loads(call["function"]["arguments"])
    assert arguments["unit"] in ("C", "F")
    assert arguments["n"] in (1, 2)


def test_a_regex_behind_the_reasoning(engine: TinyEngine) -> None:
    form = {"type": "regex", "regex": "(yes|no)"}
    fields = {"thinking": {"type": "enabled"}, "response_format": form, "max_tokens": 300}
    for seed in range(6):
        found = answered(engine, seed=seed, **fields)
        if found["finish_reason"] == "stop":
            assert found["message"]["content"] in ("yes", "no")
        else:
            assert found["message"]["content"] in ("", "y", "ye", "n")


def test_a_stop_string_ends_the_request_in_the_engine(engine: TinyEngine) -> None:
    whole = answered(engine)["message"]["content"]
    stop = whole[4:7]
    assert answered(engine, stop=stop)["message"]["content"] == whole[: whole.index(stop)]
    assert engine.llm.in_work == 0


def test_the_other_protocols_answer_too(engine: TinyEngine) -> None:
    body: dict[str, Any] = {"model": MODEL, "input": "A fox", "max_output_tokens": 20}
    body["reasoning"] = {"effort": "none"}
    reply = ask(Responses(ResponsesOptions()), body, engine)
    assert reply.body["output"][0]["content"][0]["text"]
    body = {"model": MODEL, "messages": SAID, "max_tokens": 20, **OFF}
    assert ask(Messages(MessagesOptions()), body, engine).body["content"][0]["text"]
