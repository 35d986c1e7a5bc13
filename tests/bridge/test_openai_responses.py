"""Does the official client of OpenAI, with strict validation, take what Responses sends?"""

import json
from functools import partial
from typing import Any

import pytest
import serving
from scripted import MODEL
from serving import CALL, PARAMETERS, PARSED, Inner, Outer, engine_of, run

openai = pytest.importorskip("openai", reason="nox -s bridge runs these")

client_of = partial(serving.client_of, openai.AsyncOpenAI, "/v1")


def test_responses_text() -> None:
    async def body() -> Any:
        async with client_of(engine_of("so«/think»世界")) as client:
            return await client.responses.create(model=MODEL, input="json?")

    found = run(body)
    assert found.output_text == "世界"
    assert found.output[0].type == "reasoning"
    assert found.status == "completed"
    assert found.usage.output_tokens_details.reasoning_tokens == 2


def test_responses_stream() -> None:
    async def body() -> list[Any]:
        async with client_of(engine_of("so«/think»世界")) as client:
            stream = await client.responses.create(model=MODEL, input="json?", stream=True)
            return [event async for event in stream]

    events = run(body)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == "世界"
    assert events[-1].response.output_text == "世界"


def test_responses_stream_helper_with_tools() -> None:
    async def body() -> Any:
        async with client_of(engine_of(CALL)) as client:
            function = {"name": "weather", "parameters": PARAMETERS}
            tool: Any = {"type": "function", "strict": False, **function}
            async with client.responses.stream(
                model=MODEL, input="json?", tools=[tool], reasoning={"effort": "none"}
            ) as events:
                return await events.get_final_response()

    [call] = [item for item in run(body).output if item.type == "function_call"]
    assert json.loads(call.arguments) == {"city": 'Kö"ln'}


def test_responses_parse() -> None:
    async def body() -> Any:
        async with client_of(engine_of(PARSED)) as client:
            return await client.responses.parse(
                model=MODEL, input="json?", text_format=Outer, reasoning={"effort": "none"}
            )

    assert run(body).output_parsed == Outer(name="é", inner=Inner(x=1), more=Inner(x=2))


def test_responses_that_were_stored() -> None:
    async def body() -> None:
        async with client_of(engine_of("so«/think»fox")) as client:
            first = await client.responses.create(model=MODEL, input="one")
            again = await client.responses.retrieve(first.id)
            assert again.output_text == "fox"
            second = await client.responses.create(
                model=MODEL, input="two", previous_response_id=first.id
            )
            assert second.previous_response_id == first.id
            await client.responses.delete(first.id)
            with pytest.raises(openai.NotFoundError):
                await client.responses.retrieve(first.id)

    run(body)
