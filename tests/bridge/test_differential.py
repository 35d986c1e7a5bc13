"""Do prompts and events equal those of deepseek-recipe itself, byte by byte?

The library is driven here by hand, one token at a time, as its documentation says. Two thousand
conversations, each with several splits of the answer into steps: the steps must not show, but in
what is written at once. ``compat`` is off: it adds fields of later types to whole responses.
"""

import asyncio
import random
import re
from typing import Any

import deepseek_recipe as recipe
import pytest
from conversations import Case, case
from deepinfer_core.testing.fakes import byte_tokenizer_source
from deepinfer_recipe_bridge.chat import Chat
from deepinfer_recipe_bridge.messages import Messages
from deepinfer_recipe_bridge.options import ChatOptions, MessagesOptions, ResponsesOptions
from deepinfer_recipe_bridge.responses import Responses
from scripted import EOS, MODEL, ScriptedEngine, ask_async, logprob_of

from deepinfer_recipe_bridge import preparing, surface

COUNT, SHARES = 2000, 10
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
    """One token a step, all in one, and two random ones."""
    found = [[[token] for token in tokens], [tokens] if tokens else []]
    for _ in range(2):
        cuts = sorted(chance.sample(range(1, len(tokens)), k=len(tokens) // 3)) if tokens else []
        ends = [*cuts, len(tokens)]
        found.append([tokens[first:last] for first, last in zip([0, *cuts], ends, strict=True)])
    return found


def settled(raw: bytes) -> bytes:
    """Without what the library makes up for each response: times, and ids of calls."""
    raw = re.sub(rb'"(created|created_at|completed_at)":\d+', rb'"\1":0', raw)
    return re.sub(rb"call_(\d\d)_\w+", rb"call_\1", raw)


@pytest.mark.parametrize("share", range(SHARES))
def test_prompts_and_events_equal_the_library_for_every_split(
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
        for split in splits(one.tokens, random.Random(seed)):
            # The prompt is written for the first split only: that takes most of the time.
            steps = [*split, [EOS]] if one.reason == "stop" else split
            engine = ScriptedEngine(steps=steps, reason=one.reason, cached=CACHED)
            reply = await ask_async(PROTOCOLS[one.protocol], one.body, engine)
            assert reply.status == 200, reply.raw
            assert engine.requests[0].prompt_token_ids == prompt, seed
            assert settled(reply.raw) == settled(raw), seed
            assert len(reply.writes) <= len(steps) + 3
            monkeypatch.setattr(surface, "prompt_ids", lambda *_, prompt=prompt: prompt)
        monkeypatch.setattr(surface, "prompt_ids", preparing.prompt_ids)
    # Conversations are made to be taken; what the library refuses of them is a small rest.
    assert refused <= len(seeds) // 10, refused
