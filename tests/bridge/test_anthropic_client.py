"""Does the official client of Anthropic, with strict validation, take what Messages sends?"""

import asyncio
from functools import partial
from typing import Any

import pytest
import serving
from deepinfer_core.errors import EngineUnavailable
from deepinfer_core.testing.served import until
from scripted import MODEL
from serving import (
    CALL,
    PARAMETERS,
    SAID,
    Inner,
    Outer,
    engine_of,
    failing_behind,
    left,
    prompt_of,
    run,
)

anthropic = pytest.importorskip("anthropic", reason="nox -s bridge runs these")

OFF: Any = {"type": "disabled"}
TOOL: Any = {
    "name": "weather",
    "input_schema": PARAMETERS,
}


client_of = partial(serving.client_of, anthropic.AsyncAnthropic, "/anthropic")


def test_text_thinking_and_usage() -> None:
    async def body() -> Any:
        async with client_of(engine_of("so«/think»naïve 世界 🙂")) as client:
            ask = client.messages.create
            return [await ask(model=MODEL, messages=SAID, max_tokens=99) for _ in range(2)]

    first, second = run(body)
    thinking, text = first.content
    assert (thinking.type, thinking.thinking) == ("thinking", "so")
    assert (text.type, text.text) == ("text", "naïve 世界 🙂")
    assert first.stop_reason == "end_turn"
    assert second.usage.cache_read_input_tokens > 0
    total = second.usage.input_tokens + second.usage.cache_read_input_tokens
    assert total == first.usage.input_tokens


def test_stream() -> None:
    async def body() -> tuple[str, Any]:
        async with (
            client_of(engine_of("so«/think»naïve 世界")) as client,
            client.messages.stream(model=MODEL, messages=SAID, max_tokens=99) as stream,
        ):
            return "".join([text async for text in stream.text_stream]), (
                await stream.get_final_message()
            )

    text, message = run(body)
    assert text == "naïve 世界"
    assert message.content[0].thinking == "so"
    assert message.usage.output_tokens == 3 + len("naïve 世界".encode())


@pytest.mark.parametrize("stream", [False, True])
def test_tools(stream: bool) -> None:
    async def body() -> Any:
        async with client_of(engine_of(CALL)) as client:
            fields: Any = {
                "model": MODEL,
                "messages": SAID,
                "max_tokens": 999,
                "tools": [TOOL, {**TOOL, "type": "custom", "name": "other"}],
                "thinking": OFF,
            }
            if not stream:
                return await client.messages.create(**fields)
            async with client.messages.stream(**fields) as events:
                return await events.get_final_message()

    message = run(body)
    assert message.stop_reason == "tool_use"
    text, call = message.content
    assert text.text == "Hm."
    assert (call.name, call.input) == ("weather", {"city": 'Kö"ln'})


def test_the_result_of_a_tool_is_taken_back() -> None:
    async def body() -> str:
        engine = engine_of(CALL)
        async with client_of(engine) as client:
            fields: Any = {"model": MODEL, "max_tokens": 999, "tools": [TOOL], "thinking": OFF}
            first = await client.messages.create(messages=SAID, **fields)
            result = {
                "type": "tool_result",
                "tool_use_id": first.content[1].id,
                "content": "rain",
            }
            turns = [
                *SAID,
                {"role": "assistant", "content": first.content},
                {"role": "user", "content": [result]},
            ]
            await client.messages.create(messages=turns, **fields)
        return prompt_of(engine, 1)

    assert "<tool_result>rain</tool_result>" in run(body)


def test_parse() -> None:
    async def body() -> Any:
        text = '{"name": "é", "inner": {"x": 1}, "more": null}'
        engine = engine_of(text)
        async with client_of(engine) as client:
            found = await client.messages.parse(
                model=MODEL, messages=SAID, max_tokens=99, output_format=Outer, thinking=OFF
            )
        return found, engine.requests[0].params.grammar_request

    found, grammar = run(body)
    assert found.parsed_output == Outer(name="é", inner=Inner(x=1), more=None)
    assert grammar.kind == "json_schema"


def test_stop_sequences_and_limits() -> None:
    async def body() -> tuple[Any, Any]:
        async with client_of(engine_of("one STOP two")) as client:
            fields: Any = {"model": MODEL, "messages": SAID, "thinking": OFF}
            ask = client.messages.create
            return (
                await ask(max_tokens=99, stop_sequences=["STOP"], **fields),
                await ask(max_tokens=2, **fields),
            )

    stopped, cut = run(body)
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "STOP")
    assert stopped.content[0].text == "one "
    assert (cut.stop_reason, cut.content[0].text) == ("max_tokens", "on")


def test_tokens_are_counted() -> None:
    async def body() -> tuple[int, int]:
        engine = engine_of("x")
        async with client_of(engine) as client:
            found = await client.messages.count_tokens(model=MODEL, messages=SAID, tools=[TOOL])
            await client.messages.create(model=MODEL, messages=SAID, tools=[TOOL], max_tokens=9)
        return found.input_tokens, len(engine.requests[0].prompt_token_ids)

    counted, sent = run(body)
    assert counted == sent


def test_errors_have_the_client_s_types() -> None:
    async def body() -> None:
        async with client_of(engine_of("x"), keys={"k": "secret"}) as client:
            ask = client.messages.create
            with pytest.raises(anthropic.BadRequestError) as wrong:
                await ask(model="nobody", messages=SAID, max_tokens=9)
            assert wrong.value.body["error"]["type"] == "invalid_request_error"
            assert wrong.value.body["request_id"]
            with pytest.raises(anthropic.AuthenticationError):
                await client.with_options(api_key="wrong").messages.create(
                    model=MODEL, messages=SAID, max_tokens=9
                )
        gone = engine_of("x", failure=lambda request, count: EngineUnavailable("draining"))
        async with client_of(gone) as client:
            with pytest.raises(anthropic.APIStatusError) as draining:
                await client.messages.create(model=MODEL, messages=SAID, max_tokens=9)
            assert draining.value.status_code == 503
            assert draining.value.body["error"]["type"] == "overloaded_error"

    run(body)


def test_a_failure_within_a_stream_is_raised() -> None:
    async def body() -> None:
        async with client_of(failing_behind(3)) as client:
            stream = await client.messages.create(
                model=MODEL, messages=SAID, max_tokens=99, stream=True
            )
            with pytest.raises(anthropic.APIStatusError):
                async for _ in stream:
                    pass

    run(body)


def test_a_client_that_leaves_ends_its_request() -> None:
    async def body() -> dict[str, str]:
        engine = engine_of("x" * 4000, step_s=0.002)
        async with client_of(engine) as client:
            async with client.messages.stream(
                model=MODEL, messages=SAID, max_tokens=4000
            ) as stream:
                await anext(aiter(stream))
            return await left(engine)

    assert list(run(body, 20).values()) == ["closed"]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_was_ended_does_not_come_again(stream: bool, waits: bool) -> None:
    async def body() -> tuple[Any, list[str]]:
        engine = engine_of("x" * 4000, step_s=0.002)
        if waits:
            engine.pause()
        async with client_of(engine) as unretrying:
            client = unretrying.with_options(max_retries=2)

            async def answered() -> Any:
                fields: Any = {"model": MODEL, "messages": SAID, "max_tokens": 4000}
                if not stream:
                    return await client.messages.create(**fields)
                async with client.messages.stream(**fields) as events:
                    return await events.get_final_message()

            task = asyncio.create_task(answered())
            await until(lambda: bool(engine.requests))
            assert engine.abort(engine.requests[0].request_id)
            message = await task
        return message.stop_reason, list(engine.outcomes.values())

    assert run(body, 20) == ("max_tokens", ["abort"])


def test_a_hundred_streams_at_once() -> None:
    text = "naïve 世界 🙂 "

    async def one(client: Any, number: int) -> str:
        async with client.messages.stream(
            model=MODEL,
            messages=[{"role": "user", "content": str(number)}],
            max_tokens=999,
            thinking=OFF,
        ) as stream:
            return "".join([part async for part in stream.text_stream])

    async def body() -> tuple[list[str], int]:
        engine = engine_of(text, places=128, tokens_per_step=5, step_s=0.05)
        async with client_of(engine) as client:
            found = await asyncio.gather(*[one(client, number) for number in range(100)])
        return found, engine.in_work

    found, left = run(body)
    assert found == [text] * 100
    assert left == 0
