"""Random conversations of the three protocols, and random answers to them, from one seed each."""

import json
import random
from dataclasses import dataclass
from typing import Any

from deepinfer_core.engine.outputs import FinishReason
from scripted import DSML, MODEL, THINK_END, tokens_of

WORDS = (
    "so ", "the fox ", "naïve ", "世界 ", "🙂", "𠮷 ", "\n", "\n\n", "12.5 ", "```json\n",
    '{"a": [1]}', "<｜User｜>", "</think>", "<think>", "｜DSML｜", "<tool_result>", "STOP HERE",
    "STOP", "json ", "\u2028", "e\u0301", "\t", "\\", '"', "&amp;", "<｜DSML｜ calls>", "\x00",
)  # fmt: skip
NAMES = ("get_weather", "f", "a-b_C9")


@dataclass
class Case:
    """A body, the tokens of the answer, and why it ends."""

    protocol: str
    body: dict[str, Any]
    tokens: list[int]
    reason: FinishReason


def text(chance: random.Random, most: int = 8) -> str:
    return "".join(chance.choices(WORDS, k=chance.randrange(1, most)))


def case(seed: int) -> Case:
    chance = random.Random(seed)
    protocol = ("chat", "responses", "messages")[seed % 3]
    body = {"chat": chat, "responses": responses, "messages": messages}[protocol](chance)
    return Case(protocol, body, answer(chance), chance.choice(("stop", "length")))


def chat(chance: random.Random) -> dict[str, Any]:
    body: dict[str, Any] = {"model": MODEL, "messages": chat_messages(chance)}
    body["thinking"] = {"type": chance.choice(("enabled", "disabled"))}
    body |= maybe(chance, reasoning_effort=chance.choice(("low", "high", "max")))
    if chance.random() < 0.5:
        body["tools"] = [{"type": "function", "function": one} for one in tools(chance)]
        body |= maybe(chance, tool_choice=chance.choice(("auto", "none")))
        if body["thinking"]["type"] == "disabled":
            body |= maybe(chance, tool_choice="required")
    if chance.random() < 0.3:
        body |= {"logprobs": True, "top_logprobs": chance.randrange(4)}
    body |= maybe(chance, stop=chance.choice(("STOP", ["STOP HERE", "世"], "\n")))
    body |= maybe(chance, temperature=0.5, top_p=0.5, seed=chance.randrange(2**63), max_tokens=99)
    body |= maybe(chance, response_format=chance.choice(FORMATS))
    if chance.random() < 0.7:
        body["stream"] = True
        body |= maybe(chance, stream_options={"include_usage": True})
    if "response_format" not in body and "tools" not in body and chance.random() < 0.2:
        body["messages"].append({"role": "assistant", "content": text(chance), "prefix": True})
    return body


SCHEMA = {
    "type": "object",
    "properties": {"é": {"type": "string"}, "n": {"type": ["integer", "null"]}},
}
FORMATS = (
    {"type": "json_object"},
    {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}},
    {"type": "regex", "regex": "[a-z]+"},
)


def chat_messages(chance: random.Random) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if chance.random() < 0.5:
        found.append({"role": "system", "content": text(chance)})
    for turn in range(chance.randrange(3)):
        found.append({"role": "user", "content": user_content(chance, "text")})
        said: dict[str, Any] = {"role": "assistant", "content": text(chance)}
        said |= maybe(chance, reasoning_content=text(chance))
        if chance.random() < 0.4:
            calls = [(f"call_{turn}_{i}", arguments(chance)) for i in range(chance.randrange(1, 3))]
            said["tool_calls"] = [
                {"id": name, "type": "function", "function": {"name": "f", "arguments": value}}
                for name, value in calls
            ]
            found.append(said)
            found += [
                {"role": "tool", "tool_call_id": name, "content": text(chance)}
                for name, _ in reversed(calls)
            ]
        else:
            found.append(said)
    found.append({"role": "user", "content": [{"type": "text", "text": f"json {text(chance)}"}]})
    return found


def responses(chance: random.Random) -> dict[str, Any]:
    items: list[dict[str, Any]] = []
    for turn in range(chance.randrange(3)):
        items.append({"role": "user", "content": user_content(chance, "input_text")})
        if chance.random() < 0.4:
            said = text(chance)
            items.append(
                {"type": "reasoning", "content": [{"type": "reasoning_text", "text": said}]}
            )
        if chance.random() < 0.4:
            name = f"call_{turn}"
            items.append(
                {
                    "type": "function_call",
                    "call_id": name,
                    "name": "f",
                    "arguments": arguments(chance),
                }
            )
            items.append({"type": "function_call_output", "call_id": name, "output": text(chance)})
        else:
            part = {"type": "output_text", "text": text(chance)}
            items.append({"type": "message", "role": "assistant", "content": [part]})
    items.append({"role": chance.choice(("user", "developer")), "content": f"json {text(chance)}"})
    body: dict[str, Any] = {"model": MODEL, "input": items}
    if chance.random() < 0.2:
        body["input"] = text(chance)
    body |= maybe(chance, instructions=text(chance), user="somebody", max_output_tokens=77)
    body |= maybe(chance, reasoning={"effort": chance.choice(("none", "low", "high"))})
    body |= maybe(chance, temperature=1.5, top_p=0.3, top_logprobs=chance.randrange(1, 4))
    body |= maybe(chance, text={"format": {"type": "json_schema", "name": "s", "schema": SCHEMA}})
    if chance.random() < 0.4:
        body["tools"] = [{"type": "function", **one} for one in tools(chance)]
    body |= maybe(chance, stream=True)
    return body


def messages(chance: random.Random) -> dict[str, Any]:
    turns: list[dict[str, Any]] = []
    for turn in range(chance.randrange(3)):
        turns.append({"role": "user", "content": user_content(chance, "text")})
        blocks: list[dict[str, Any]] = []
        if chance.random() < 0.4:
            blocks.append({"type": "thinking", "thinking": text(chance), "signature": "s"})
        blocks.append({"type": "text", "text": text(chance)})
        if chance.random() < 0.4:
            name, value = f"toolu_{turn}", json.loads(arguments(chance))
            blocks.append({"type": "tool_use", "id": name, "name": "f", "input": value})
            result = {"type": "tool_result", "tool_use_id": name, "content": text(chance)}
            turns += [
                {"role": "assistant", "content": blocks},
                {"role": "user", "content": [result, {"type": "text", "text": text(chance)}]},
                {"role": "assistant", "content": text(chance)},
            ]
        else:
            turns.append({"role": "assistant", "content": blocks})
    turns.append({"role": "user", "content": text(chance)})
    body: dict[str, Any] = {"model": MODEL, "messages": turns, "max_tokens": 50}
    body |= maybe(chance, system=text(chance), temperature=0.1, metadata={"user_id": "u"})
    body |= maybe(chance, thinking={"type": chance.choice(("enabled", "disabled", "adaptive"))})
    body |= maybe(chance, stop_sequences=["STOP", "界"], output_config={"effort": "low"})
    if chance.random() < 0.4:
        body["tools"] = [
            {"name": one["name"], "description": "d", "input_schema": one["parameters"]}
            for one in tools(chance)
        ]
    body |= maybe(chance, stream=True)
    return body


def user_content(chance: random.Random, kind: str) -> Any:
    if chance.random() < 0.5:
        return text(chance)
    return [{"type": kind, "text": text(chance)} for _ in range(chance.randrange(1, 3))]


def tools(chance: random.Random) -> list[dict[str, Any]]:
    names = chance.sample(NAMES, chance.randrange(1, 3))
    return [{"name": name, "description": text(chance), "parameters": SCHEMA} for name in names]


def arguments(chance: random.Random) -> str:
    value = {"a": text(chance), "n": chance.randrange(9), "é": [text(chance)]}
    return json.dumps(value, ensure_ascii=chance.random() < 0.5)


def maybe(chance: random.Random, **fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if chance.random() < 0.4}


def answer(chance: random.Random) -> list[int]:
    """Reasoning, an answer, calls; any of them may be missing, cut short or in disorder."""
    found: list[int] = []
    if chance.random() < 0.7:
        found += [*tokens_of(text(chance)), THINK_END]
    found += tokens_of(text(chance, 10))
    if chance.random() < 0.4:
        found += calls(chance)
    if chance.random() < 0.1:
        found += [*tokens_of(text(chance)), THINK_END, *tokens_of(text(chance))]
    if chance.random() < 0.2:
        found = found[: chance.randrange(len(found) + 1)]
    return found


def calls(chance: random.Random) -> list[int]:
    found = [*tokens_of("\n\n<"), DSML, *tokens_of(" calls>\n")]
    for _ in range(chance.randrange(1, 3)):
        name = chance.choice(NAMES)
        found += [*tokens_of("<"), DSML, *tokens_of(f' invoke name="{name}">\n')]
        for key, is_text, value in (("é", "true", text(chance)), ("n", "false", "[1, null]")):
            head = f' parameter name="{key}" string="{is_text}">{value}</'
            found += [*tokens_of("<"), DSML, *tokens_of(head), DSML, *tokens_of(" parameter>\n")]
        found += [*tokens_of("</"), DSML, *tokens_of(" invoke>\n")]
    return [*found, *tokens_of("</"), DSML, *tokens_of(" calls>")]
