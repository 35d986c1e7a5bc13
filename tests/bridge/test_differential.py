"""Do prompts and events equal those of deepseek-recipe itself, byte by byte?

The library is driven here by hand, one token at a time, as its documentation says. Two thousand
conversations; a short answer is split into steps in every way that there is, a longer one in four:
the steps must not show, but in what is written at once. With ``compat`` responses may have more
fields, and those only that are listed here.
"""

import asyncio
import itertools
import json
import random
import re
from collections.abc import Iterator
from typing import Any

import deepseek_recipe as recipe
import pytest
from conversations import Case, case
from deepinfer_core.testing.byte_tokenizer import byte_tokenizer_source
from deepinfer_recipe_bridge.chat import Chat
from deepinfer_recipe_bridge.messages import Messages
from deepinfer_recipe_bridge.options import ChatOptions, MessagesOptions, ResponsesOptions
from deepinfer_recipe_bridge.responses import Responses
from scripted import EOS, MODEL, ScriptedEngine, ask_async, logprob_of, marked

from deepinfer_recipe_bridge import preparing, surface

COUNT, SHARES = 2000, 10
SHORT = 8
"""Tokens of an answer that is split in every way: 128 ways at most."""
CACHED = 3
TOKENIZER = recipe.Tokenizer.from_str(byte_tokenizer_source())
ENCODING = recipe.DeepseekV41Encoding().with_tokenizer(TOKENIZER)
OPTIONS = recipe.ConversionOptions().with_model_versions_by_name(
    {MODEL: recipe.ModelVersion.DeepseekV41Flash}
)
REASONS = {
    "stop": recipe.InferenceFinishReason.Stop,
    "length": recipe.InferenceFinishReason.Length,
}
KINDS: dict[str, tuple[Any, Any, str]] = {
    "chat": (recipe.ChatCompletionRequest, recipe.ChatCompletionResponse, "chatcmpl-"),
    "responses": (recipe.ResponsesRequest, recipe.ResponsesResponse, "resp_"),
    "messages": (recipe.MessagesRequest, recipe.MessagesResponse, "msg_"),
}
PROTOCOLS = {
    "chat": Chat(ChatOptions(compat=False)),
    "responses": Responses(ResponsesOptions(compat=False)),
    "messages": Messages(MessagesOptions(compat=False)),
}
COMPATIBLE = {
    "chat": Chat(ChatOptions()),
    "responses": Responses(ResponsesOptions()),
    "messages": Messages(MessagesOptions()),
}
TAKES = ((True,), (True, False, True, True), (*[True] * 7, False))
"""When a client takes what is written beside the iterator: what it does not comes from that."""

ADDED = {
    "chat": {"refusal", "annotations"},
    "responses": {"cache_write_tokens", "verbosity"},
    "messages": {
        "container", "stop_details", "cache_creation", "inference_geo", "output_tokens_details",
        "server_tool_use", "citations", "caller",
    },
}  # fmt: skip
"""What ``compat`` adds, which the library never writes."""


def expected(one: Case, fingerprint: str) -> tuple[tuple[int, ...], bytes]:
    """Prompt and response of the library alone."""
    kind, response, prefix = KINDS[one.protocol]
    request = kind(one.body)
    is_responses = one.protocol == "responses"
    echo = request.echo() if is_responses else None
    names = request.namespace_tool_map(OPTIONS) if is_responses else None
    converted = request.convert(OPTIONS)
    generator = kind.chunk_generator(converted, f"{prefix}id", MODEL)
    if is_responses:
        generator = generator.with_echo(echo).with_namespace_tool_map(names)
    processor = recipe.StreamProcessor(generator, converted.parsing_options, TOKENIZER)
    prompt = tuple(ENCODING.encode(converted.conversation))
    usage = recipe.PromptUsage(prompt_tokens=len(prompt), prompt_cache_hit_tokens=CACHED)
    events = processor.push(
        recipe.InferenceChunk.ready(prompt_usage=usage, system_fingerprint=fingerprint)
    )
    inference = converted.inference_options
    for token in one.tokens:
        logprobs = None
        if inference.logprobs:
            made_up = logprob_of(token, inference.top_logprobs or 0)
            logprobs = [(made_up.logprob, list(made_up.top))]
        events += processor.push(recipe.InferenceChunk.tokens([token], logprobs))
        if processor.finished:
            break
    else:
        events += processor.push(recipe.InferenceChunk.finish(REASONS[one.reason]))
    if converted.stream:
        return prompt, written(response, events)
    whole = response(f"{prefix}id", MODEL, 0, len(prompt), CACHED)
    for event in events:
        whole.accumulate(event)
    return prompt, whole.to_json().encode()


def written(response: Any, events: list[Any]) -> bytes:
    parts = []
    for event in events:
        name = response.sse_event_name(event)
        parts.append(f"event: {name}\n" if name else "")
        parts.append(f"data: {event.to_json()}\n\n")
    done = response.sse_done_data()
    parts.append(f"data: {done}\n\n" if done else "")
    return "".join(parts).encode()


def splits(tokens: list[int], chance: random.Random) -> list[list[list[int]]]:
    """All of a short answer; else one token a step, all in one, and two random ones."""
    if 0 < len(tokens) <= SHORT:
        return list(every_split(tokens))
    found = [[[token] for token in tokens], [tokens] if tokens else []]
    for _ in range(2):
        cuts = sorted(chance.sample(range(1, len(tokens)), k=len(tokens) // 3)) if tokens else []
        ends = [*cuts, len(tokens)]
        found.append([tokens[first:last] for first, last in zip([0, *cuts], ends, strict=True)])
    return found


def every_split(tokens: list[int]) -> Iterator[list[list[int]]]:
    """Each way to cut between tokens: 2 to the power of the places."""
    for cuts in itertools.product((False, True), repeat=len(tokens) - 1):
        ends = [place for place, is_cut in enumerate(cuts, 1) if is_cut]
        yield [
            tokens[first:last] for first, last in zip([0, *ends], [*ends, len(tokens)], strict=True)
        ]


def without(data: Any, names: set[str]) -> Any:
    """JSON data without fields of these names."""
    if isinstance(data, list):
        return [without(one, names) for one in data]
    if not isinstance(data, dict):
        return data
    return {key: without(value, names) for key, value in data.items() if key not in names}


def parts(raw: bytes, added: set[str]) -> list[Any]:
    """Lines of a stream, or a whole response, as data without what ``compat`` adds."""
    found: list[Any] = []
    for line in settled(raw).decode().split("\n"):
        text = line.removeprefix("data: ")
        found.append(without(json.loads(text), added) if text.startswith("{") else line)
    return found


def settled(raw: bytes) -> bytes:
    """Without what the library makes up for each response: times, and ids of calls."""
    raw = re.sub(rb'"(created|created_at|completed_at)":\d+', rb'"\1":0', raw)
    return re.sub(rb"call_(\d\d)_\w+", rb"call_\1", raw)


@pytest.mark.parametrize("count", range(1, 6))
def test_every_split_is_every_way_to_cut(count: int) -> None:
    tokens = list(range(count))
    found = list(every_split(tokens))
    assert len({str(one) for one in found}) == len(found) == 2 ** (count - 1)
    assert all(step for one in found for step in one)
    assert all(list(itertools.chain(*one)) == tokens for one in found)


ENDS_TWICE = {
    "behind text": "a«/think»b«/think»\n\nc",
    "behind line feeds": "a«/think»\n\n«/think»\n\nc",
    "at once": "«/think»«/think»c",
    "and once more": "a«/think»b«/think»c«/think»",
}


@pytest.mark.parametrize("tokens", ENDS_TWICE.values(), ids=ENDS_TWICE)
@pytest.mark.parametrize("thinking", ["enabled", "disabled"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("protocol", KINDS)
def test_a_second_end_of_reasoning_means_what_it_means_to_the_library(
    protocol: str, stream: bool, thinking: str, tokens: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surface.secrets, "token_hex", lambda size: "id")
    body: dict[str, Any] = {"model": MODEL, "stream": stream}
    if protocol == "responses":
        effort = "high" if thinking == "enabled" else "none"
        body |= {"input": "hi", "reasoning": {"effort": effort}}
    else:
        said = [{"role": "user", "content": "hi"}]
        body |= {"messages": said, "max_tokens": 99, "thinking": {"type": thinking}}
    one = Case(protocol=protocol, body=body, tokens=marked(tokens), reason="stop")
    _, raw = expected(one, surface._fingerprint(ScriptedEngine().facts))
    for steps in ([[token] for token in one.tokens], [one.tokens]):
        engine = ScriptedEngine(steps=[*steps, [EOS]], cached=CACHED)
        reply = asyncio.run(ask_async(PROTOCOLS[protocol], body, engine))
        assert settled(reply.raw) == settled(raw)


@pytest.mark.parametrize("share", range(SHARES))
def test_prompts_and_events_equal_the_library_for_all_splits_of_short_answers_and_four_of_others(
    share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surface.secrets, "token_hex", lambda size: "id")
    asyncio.run(compare(range(share, COUNT, SHARES), monkeypatch))


async def compare(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    fingerprint = surface._fingerprint(ScriptedEngine().facts)
    refused = 0
    for seed in seeds:
        one = case(seed)
        try:
            prompt, raw = expected(one, fingerprint)
        except recipe.ConversionError:
            refused += 1
            reply = await ask_async(PROTOCOLS[one.protocol], one.body, ScriptedEngine())
            assert reply.status == 400, seed
            continue
        steps: list[list[int]] = []
        for number, split in enumerate(splits(one.tokens, random.Random(seed))):
            # The prompt is written for the first split only: that takes most of the time.
            steps = [*split, [EOS]] if one.reason == "stop" else split
            engine = ScriptedEngine(steps=steps, reason=one.reason, cached=CACHED)
            takes = TAKES[number % len(TAKES)]
            reply = await ask_async(PROTOCOLS[one.protocol], one.body, engine, takes=takes)
            assert reply.status == 200, reply.raw
            assert engine.requests[0].prompt_token_ids == prompt, seed
            assert settled(reply.raw) == settled(raw), seed
            assert len(reply.writes) <= len(steps) + 3
            monkeypatch.setattr(surface, "prompt_ids", lambda *_, prompt=prompt: prompt)
        monkeypatch.setattr(surface, "prompt_ids", preparing.prompt_ids)
        engine = ScriptedEngine(steps=steps, reason=one.reason, cached=CACHED)
        reply = await ask_async(COMPATIBLE[one.protocol], one.body, engine)
        added = ADDED[one.protocol]
        assert engine.requests[0].prompt_token_ids == prompt, seed
        assert parts(reply.raw, added) == parts(raw, added), seed
    # Conversations are made to be taken; what the library refuses of them is a small rest.
    assert refused <= len(seeds) // 10, refused
