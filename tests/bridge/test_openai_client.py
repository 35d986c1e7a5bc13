"""Does the official client of OpenAI, with strict validation, take what Chat sends?"""

import asyncio
import json
from functools import partial
from typing import Any

import pytest
import serving
from deepinfer_core.errors import EngineBusy
from deepinfer_core.testing.served import until
from pydantic import BaseModel
from scripted import MODEL
from serving import (
    CALL,
    PARAMETERS,
    PARSED,
    SAID,
    Inner,
    Outer,
    engine_of,
    failing_behind,
    left,
    prompt_of,
    run,
)

openai = pytest.importorskip("openai", reason="nox -s bridge runs these")

OFF = {"thinking": {"type": "disabled"}}
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": PARAMETERS,
    },
}


client_of = partial(serving.client_of, openai.AsyncOpenAI, "/v1")


def test_chat_text_and_usage() -> None:
    async def body() -> Any:
        async with client_of(engine_of("so«/think»naïve 世界 🙂")) as client:
            ask = client.chat.completions.create
            return [await ask(model=MODEL, messages=SAID) for _ in range(2)]

    first, second = run(body)
    message = first.choices[0].message
    assert message.content == "naïve 世界 🙂"
    assert message.reasoning_content == "so"
    assert first.choices[0].finish_reason == "stop"
    usage = second.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.completion_tokens_details.reasoning_tokens == 2
    assert 0 < usage.prompt_tokens_details.cached_tokens < usage.prompt_tokens
    assert first.usage.prompt_tokens_details.cached_tokens == 0


def test_chat_stream() -> None:
    async def body() -> list[Any]:
        async with client_of(engine_of("so«/think»naïve 世界")) as client:
            stream = await client.chat.completions.create(
                model=MODEL, messages=SAID, stream=True, stream_options={"include_usage": True}
            )
            return [chunk async for chunk in stream]

    chunks = run(body)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "naïve 世界"
    thoughts = [getattr(chunk.choices[0].delta, "reasoning_content", "") for chunk in chunks]
    assert "".join(thought or "" for thought in thoughts) == "so"
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].usage.completion_tokens == 3 + len("naïve 世界".encode())


@pytest.mark.parametrize("stream", [False, True])
def test_chat_tools(stream: bool) -> None:
    async def body() -> Any:
        async with client_of(engine_of(CALL)) as client:
            fields: Any = {"model": MODEL, "messages": SAID, "tools": [TOOL], "extra_body": OFF}
            if not stream:
                return await client.chat.completions.create(**fields)
            async with client.chat.completions.stream(**fields) as events:
                return await events.get_final_completion()

    choice = run(body).choices[0]
    assert choice.finish_reason == "tool_calls"
    [call] = choice.message.tool_calls
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments) == {"city": 'Kö"ln'}
    assert choice.message.content == "Hm."


def test_the_result_of_a_tool_is_taken_back() -> None:
    async def body() -> Any:
        engine = engine_of(CALL)
        async with client_of(engine) as client:
            ask = client.chat.completions.create
            fields: Any = {"model": MODEL, "tools": [TOOL], "extra_body": OFF}
            message = (await ask(messages=SAID, **fields)).choices[0].message
            result = {
                "role": "tool",
                "tool_call_id": message.tool_calls[0].id,
                "content": "rain",
            }
            await ask(messages=[*SAID, message, result], **fields)
        return prompt_of(engine, 1)

    prompt = run(body)
    assert 'string="true">Kö"ln' in prompt
    assert "<tool_result>rain</tool_result>" in prompt


def test_chat_parse() -> None:
    async def body() -> Any:
        async with client_of(engine_of(PARSED)) as client:
            return await client.chat.completions.parse(
                model=MODEL, messages=SAID, response_format=Outer, extra_body=OFF
            )

    assert run(body).choices[0].message.parsed == Outer(name="é", inner=Inner(x=1), more=Inner(x=2))


def test_chat_parse_of_tools() -> None:
    async def body() -> Any:
        async with client_of(engine_of(CALL)) as client:

            class weather(BaseModel):  # noqa: N801 - the name of the tool
                city: str

            return await client.chat.completions.parse(
                model=MODEL,
                messages=SAID,
                tools=[openai.pydantic_function_tool(weather)],
                extra_body=OFF,
            )

    [call] = run(body).choices[0].message.tool_calls
    assert call.function.parsed_arguments.city == 'Kö"ln'


def test_chat_log_probabilities() -> None:
    async def body() -> Any:
        async with client_of(engine_of("ab")) as client:
            return await client.chat.completions.create(
                model=MODEL, messages=SAID, logprobs=True, top_logprobs=3, extra_body=OFF
            )

    shown = run(body).choices[0].logprobs.content
    assert [one.token for one in shown] == ["a", "b"]
    assert [len(one.top_logprobs) for one in shown] == [3, 3]
    assert shown[0].top_logprobs[0].bytes == [ord("a")]


def test_chat_stop_strings_and_limits() -> None:
    async def body() -> tuple[Any, Any]:
        async with client_of(engine_of("one STOP two")) as client:
            ask = client.chat.completions.create
            fields: Any = {"model": MODEL, "messages": SAID, "extra_body": OFF}
            return await ask(stop="STOP", **fields), await ask(max_completion_tokens=2, **fields)

    stopped, cut = run(body)
    assert stopped.choices[0].message.content == "one "
    assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == ("on", "length")


def test_errors_have_the_client_s_types() -> None:
    async def body() -> None:
        async with client_of(engine_of("x"), keys={"k": "secret"}) as client:
            ask = client.chat.completions.create
            with pytest.raises(openai.BadRequestError) as wrong:
                await ask(model="nobody", messages=SAID)
            assert "there is no model 'nobody'" in wrong.value.message
            with pytest.raises(openai.BadRequestError):
                await client.responses.create(model=MODEL, input=[])
            with pytest.raises(openai.AuthenticationError):
                await client.with_options(api_key="wrong").responses.create(model=MODEL, input="x")
            with pytest.raises(openai.NotFoundError):
                await client.get("/nothing", cast_to=object)
        busy = engine_of("x", failure=lambda request, count: EngineBusy("full"))
        async with client_of(busy) as client:
            with pytest.raises(openai.RateLimitError) as full:
                await client.chat.completions.create(model=MODEL, messages=SAID, stream=True)
            assert int(full.value.response.headers["retry-after"]) >= 1

    run(body)


def test_a_failure_within_a_stream_is_raised() -> None:
    async def body() -> None:
        async with client_of(failing_behind(3)) as client:
            stream = await client.chat.completions.create(model=MODEL, messages=SAID, stream=True)
            with pytest.raises(openai.APIError):
                async for _ in stream:
                    pass
            stream = await client.responses.create(model=MODEL, input="x", stream=True)
            events = [event async for event in stream]
            assert events[-1].type == "response.failed"
            assert events[-1].response.error.code == "server_error"

    run(body)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_ends_its_request(stream: bool) -> None:
    async def body() -> dict[str, str]:
        engine = engine_of("x" * 4000, step_s=0.002)
        async with client_of(engine) as client:
            asked = client.chat.completions.create(model=MODEL, messages=SAID, stream=stream)
            if stream:
                events = await asked
                await anext(events)
                await events.close()
            else:
                task = asyncio.create_task(asked)
                await until(lambda: engine.in_work > 0)
                task.cancel()
            return await left(engine)

    assert list(run(body, 20).values()) == ["closed"]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_was_ended_does_not_come_again(stream: bool, waits: bool) -> None:
    async def body() -> tuple[list[str], list[str]]:
        engine = engine_of("x" * 4000, step_s=0.002)
        if waits:
            engine.pause()
        async with client_of(engine) as unretrying:
            client = unretrying.with_options(max_retries=2)

            async def chat() -> str:
                answer: Any = await client.chat.completions.create(
                    model=MODEL, messages=SAID, stream=stream, extra_body=OFF
                )
                found = [chunk async for chunk in answer] if stream else [answer]
                return str(found[-1].choices[0].finish_reason)

            async def response() -> str:
                answer: Any = await client.responses.create(
                    model=MODEL, input="hi", stream=stream, reasoning={"effort": "none"}
                )
                found = (
                    [event.response async for event in answer if hasattr(event, "response")]
                    if stream
                    else [answer]
                )
                return str(found[-1].status)

            tasks = [asyncio.create_task(chat()), asyncio.create_task(response())]
            await until(lambda: len(engine.requests) == 2)
            for request in engine.requests:
                assert engine.abort(request.request_id)
            ends = list(await asyncio.gather(*tasks))
        return ends, list(engine.outcomes.values())

    assert run(body, 20) == (["length", "incomplete"], ["abort", "abort"])


def test_a_hundred_streams_at_once() -> None:
    text = "naïve 世界 🙂 "

    async def one(client: Any, number: int) -> str:
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": f"json {number}"}],
            stream=True,
            extra_body=OFF,
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def body() -> tuple[list[str], int, int]:
        engine = engine_of(text, places=128, tokens_per_step=5, step_s=0.05)
        async with client_of(engine) as client:
            found = await asyncio.gather(*[one(client, number) for number in range(100)])
        return found, engine.most_in_work, engine.in_work

    found, most, left = run(body)
    assert found == [text] * 100
    assert most > 50
    assert left == 0
