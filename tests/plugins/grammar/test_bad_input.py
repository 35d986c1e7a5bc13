"""Does a bad grammar fail its request alone, with a message that says what and where?

Through ``LLM`` and ``AsyncLLM`` with the shipped checkpoint: beside each bad request runs one
without a grammar and one with a good grammar that no request had before, and both draw what they
draw alone.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.config import load_settings

from deepinfer_core import LLM, AsyncLLM, Completion, RequestOptions, SamplingParams

pytest.importorskip("deepinfer_tiny", reason="needs the tiny checkpoint")

PLAIN = SamplingParams(max_tokens=10, seed=1)
WORDS = r"([a-z]{2,8} ){2,4}[a-z]{2,8}!"
NUMBERS = count()
PROMPT = "Once upon a time"
TIMEOUT_S = 4.0

SLOW = r"(\w+\s?\d*\p{L}?){1,60}"
"""Takes over ten seconds to be analysed."""

Case = tuple[str, Any, str]
INVALID: dict[str, Case] = {
    "a group that is not closed": ("regex", "ab(cd", r"group without '\)' at character 2"),
    "a repetition of nothing": ("regex", "a|*b", "nothing to repeat before '[*]' at character 2"),
    "a back-reference": ("regex", r"(a)\1", "not regular at character 3"),
    "a schema that is no JSON": ("json_schema", '{"type": ', "at character 9"),
    "a schema that is a list": ("json_schema", [1], "#: must be a schema"),
    "a type that does not exist": (
        "json_schema", {"properties": {"a": {"items": {"type": "strin"}}}},
        "#/properties/a/items/type",
    ),
    "a length below nothing": ("json_schema", {"items": {"minLength": -1}}, "#/items/minLength"),
    "a pattern that is wrong": ("json_schema", {"pattern": "a(b"}, "#/pattern: .* at character 1"),
    "a number that JSON has not": (
        "json_schema", '{"maximum": NaN}', "holds NaN at character 12",
    ),
    "a number that is too long": (
        "json_schema", '{"maximum": ' + "9" * 5000 + "}", "5000 digits at character 12",
    ),
    "a literal that is not closed": ("ebnf", 'root ::= "a', "closing quote at character 9"),
    "a rule that does not exist": ("ebnf", "root ::= foo", "'foo' at character 9"),
    "two rules of one name": ("ebnf", 'root ::= "a"\nroot ::= "b"', "'root' at character 13"),
    "a choice that is no JSON": ("choice", '["a"', "at character 4"),
    "a choice of nothing": ("choice", [], "#: choice is an empty list"),
    "a choice of a number": ("choice", ["a", 1], "#/1: must be a text"),
    "a tag that is a list": ("structural_tag", [], "#: a structural tag must be an object"),
    "a tag without a format": ("structural_tag", {"type": "structural_tag"}, "#/format"),
    "a control token that does not exist": (
        "structural_tag",
        {"type": "structural_tag", "format": {"type": "token", "token": "<nope>"}},
        "#/format/token: '<nope>'",
    ),
    "half of a surrogate pair": ("regex", "ab\ud800", "no character at character 2"),
    "half of a surrogate pair in a schema": (
        "json_schema", '{"const": "\udfff"}', "no character at character 11",
    ),
    "a path with half of a surrogate pair": (
        "json_schema", {"properties": {"\ud800": {"type": "strin"}}}, r"#/properties/\\ud800/type",
    ),
    "text where none belongs": ("json_object", "{}", "json_object has no text"),
}  # fmt: skip
CATASTROPHIC: dict[str, Case] = {
    "repetitions written out": ("regex", "((a{1,99}){1,99}){1,99}", "over 60000 parts"),
    "a state for each subset": ("regex", "(a|b)*a(a|b){25}", "over 20000 states"),
    "a large bound": ("regex", "xa{1000000}", "over 65535 times at character 2"),
    "deep groups": ("regex", "(" * 3000 + "a" + ")" * 3000, "over 200 groups .* at character 201"),
    "alternatives multiplied": (
        "json_schema",
        {"allOf": [{"anyOf": [{"required": [f"a{n}"]}, {"maxItems": n}]} for n in range(30)]},
        "#/allOf: .* over 2000 alternatives",
    ),
    "a deep schema": (
        "json_schema", '{"items":' * 50000 + "{}" + "}" * 50000,
        "over 200 values inside each other at character 1800",
    ),
    "a rule repeated too often": (
        "ebnf", 'root ::= "a"{100000000}', "over 10000 times at character 12",
    ),
    "many items": ("json_schema", {"type": "array", "minItems": 10**7}, "#/minItems: over 5000"),
}  # fmt: skip
ENDLESS: dict[str, Case] = {
    "a schema that is itself": ("json_schema", {"$ref": "#"}, "#: the schema refers to itself"),
    "two schemas that are each other": (
        "json_schema",
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        "#/[$]defs/.: the schema refers to itself",
    ),
    "an object that needs another inside": (
        "json_schema",
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        "#/properties/a: .* matches no text at all: each of its values needs another one",
    ),
    "a list of lists that are never empty": (
        "json_schema",
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
        "#/items: .* matches no text at all: each of its values needs another one",
    ),
    "a rule without another way out": (
        "ebnf", 'root ::= "b" a\na ::= "a" a', "matches no text at all: .* 'a' at character 15",
    ),
    "a rule that begins with itself": (
        "ebnf", 'root ::= root "a"', "matches no text at all: .* 'root' at character 0",
    ),
}  # fmt: skip
UNSATISFIABLE: dict[str, Case] = {
    "no number is large and small": (
        "json_schema", {"type": "integer", "minimum": 5, "maximum": 4}, "#/maximum: .*no text",
    ),
    "no text is null": (
        "json_schema", {"allOf": [{"type": "string"}, {"type": "null"}]}, "#/allOf: .*no text",
    ),
    "nothing at all": ("json_schema", "false", "#: .*no text"),
    "a member that cannot be": (
        "json_schema",
        {"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#/$defs/b"}},
         "$defs": {"b": {"type": "string", "enum": [1]}}},
        "#/[$]defs/b/enum: .*no text",
    ),
    "an item that cannot be": (
        "json_schema", {"type": "array", "contains": {"not": {}}}, "#/contains.*no text",
    ),
    "an empty class": ("regex", r"ab[^\s\S]", "no text at all: .* at character 2"),
    "a beginning in the middle": ("regex", "a^b", "no text at all: .* at character 1"),
    "a tag with such an inside": (
        "structural_tag",
        {"type": "structural_tag", "format": {"type": "regex", "pattern": "a^b"}},
        "#/format/pattern: .*no text at all: .* at character 1",
    ),
}  # fmt: skip
LARGE: dict[str, Case] = {
    "a schema of 5 MiB": (
        "json_schema",
        {"properties": {"a": {"enum": ["x" * 1000] * 5300}, "b": {"enum": [1, 2, 3]}}},
        r"#/properties/a/enum: the grammar has 5\d{6} bytes",
    ),
    "a regular expression of 5 MiB": (
        "regex", "a" * (5 << 20), "has 5242880 bytes.* at character 1000000",
    ),
}  # fmt: skip
CASES = INVALID | CATASTROPHIC | ENDLESS | UNSATISFIABLE | LARGE


Front = LLM | AsyncLLM


def opened(checkpoint: str | None = None, front: type[Front] = LLM, **more: object) -> Any:
    api: dict[str, object] = {"grammar.timeout_s": TIMEOUT_S, **more}
    if checkpoint is not None:
        api["model.path"] = checkpoint
    return front.from_settings(load_settings(None, api=api))


def good() -> SamplingParams:
    """A grammar that nobody asked for before; what it means is always the same."""
    text = f"{WORDS}(?#{next(NUMBERS)})"
    return SamplingParams(max_tokens=40, seed=1, grammar={"kind": "regex", "grammar": text})


def bad(kind: str, grammar: Any) -> SamplingParams:
    return SamplingParams(max_tokens=10, seed=1, grammar={"kind": kind, "grammar": grammar})


def answers(front: Front, *params: SamplingParams) -> list[Completion]:
    prompts = [PROMPT] * len(params)
    if isinstance(front, AsyncLLM):
        return asyncio.run(front.generate(prompts, params))
    return front.generate(prompts, params)


@pytest.fixture(scope="module", params=["grammar.xgrammar", "grammar.llguidance"])
def component(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param.removeprefix("grammar."), reason=f"needs {request.param}")
    name: str = request.param
    return name


@pytest.fixture(
    scope="module",
    params=[
        ("grammar.xgrammar", LLM),
        ("grammar.llguidance", LLM),
        ("grammar.llguidance", AsyncLLM),
    ],
    ids=["xgrammar", "llguidance", "llguidance-async"],
)
def llm(request: pytest.FixtureRequest) -> Iterator[Front]:
    component, front = request.param
    pytest.importorskip(component.removeprefix("grammar."), reason=f"needs {component}")
    opened_front = opened(front=front, **{"components.grammar.use": component})
    yield opened_front
    if isinstance(opened_front, AsyncLLM):
        asyncio.run(opened_front.close())
    else:
        opened_front.close()


Alone = tuple[tuple[int, ...], tuple[int, ...]]


@pytest.fixture(scope="module")
def alone(llm: Front) -> Alone:
    return alone_in(llm)


def alone_in(llm: Front) -> Alone:
    [plain], [held] = answers(llm, PLAIN), answers(llm, good())
    assert held.finish_reason == "stop"
    return plain.token_ids, held.token_ids


def failed(llm: Front, alone: Alone, kind: str, grammar: Any) -> Completion:
    """The answer to a bad request, before two good ones that do not notice."""
    found, plain, held = answers(llm, bad(kind, grammar), PLAIN, good())
    assert (plain.token_ids, held.token_ids) == alone
    assert (found.finish_reason, found.text) == ("error", "")
    assert found.error is not None
    assert found.error.code == "unsupported_grammar"
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_bad_grammar_fails_its_request_with_its_place(
    llm: Front, alone: Alone, name: str
) -> None:
    kind, grammar, message = CASES[name]
    for _ in range(2):  # the second time it is known
        found = failed(llm, alone, kind, grammar)
        assert re.search(message, str(found.error)), found.error


@pytest.mark.slow
def test_one_that_takes_too_long_is_given_up(llm: Front, alone: Alone) -> None:
    for _ in range(2):
        found = failed(llm, alone, "regex", SLOW)
        assert "not compiled within 4 s" in str(found.error)
        assert "grammar.timeout_s" in str(found.error)


@pytest.mark.slow
def test_six_that_take_too_long_hold_up_no_other(component: str) -> None:
    """In one queue, with two processes, the last would not have its turn within the limit."""
    settings = {"components.grammar.use": component, "grammar.timeout_s": 60.0}
    with opened(**settings) as llm:
        alone = alone_in(llm)
        heap = [bad("regex", f"{SLOW}(?#{number})") for number in range(6)]
        ended: dict[int, Completion] = {}
        with llm.stream([PROMPT] * 8, [*heap, PLAIN, good()]) as deltas:
            for delta in deltas:
                if delta.completion is not None:
                    ended[delta.index] = delta.completion
                if {6, 7} <= ended.keys():
                    break
    assert ended.keys() == {6, 7}
    assert (ended[6].token_ids, ended[7].token_ids) == alone


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - there is no event for what a metric shows
        await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["abort", "cancel", "deadline"])
def test_a_slow_one_is_given_up_with_its_request(how: str) -> None:
    """Long before its limit, however the request ends."""
    pytest.importorskip("llguidance", reason="nox -s grammar runs these")
    settings = {"components.grammar.use": "grammar.llguidance", "grammar.timeout_s": 600.0}

    async def ended_early() -> list[Completion]:
        async with opened(front=AsyncLLM, **settings) as llm:
            await llm.generate(PROMPT, good())

            def compiles() -> bool:
                state = {"state": "compiling"}
                return bool(llm.metrics.get_sample_value("deepinfer_grammars", state))

            options = RequestOptions(timeout_s=3.0 if how == "deadline" else None)
            stream = await llm.submit(PROMPT, bad("regex", SLOW), options=options)
            answer = asyncio.ensure_future(stream.result())
            await until(compiles)
            if how == "abort":
                stream.abort()
            if how == "cancel":
                answer.cancel()
                await stream.aclose()
            [found] = await asyncio.gather(answer, return_exceptions=True)
            await until(lambda: not compiles())
            return [] if isinstance(found, BaseException) else found

    found = asyncio.run(asyncio.wait_for(ended_early(), 120.0))
    reasons = {"abort": ["abort"], "cancel": [], "deadline": ["error"]}[how]
    assert [one.finish_reason for one in found] == reasons


@pytest.mark.slow
def test_one_that_takes_too_much_memory_is_refused(component: str) -> None:
    limits = {"grammar.memory_bytes": 24 << 20, "grammar.timeout_s": 60.0}
    with opened(**{"components.grammar.use": component, **limits}) as llm:
        texts = [f"{number * 7919}" * 4 for number in range(20000)]
        found = failed(llm, alone_in(llm), "choice", texts)
    assert "memory" in str(found.error)
    assert "grammar.memory_bytes" in str(found.error) or "make it smaller" in str(found.error)


@pytest.fixture(scope="module")
def poor(component: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    """An engine whose tokenizer has no token with the first byte of U+10FFFF."""
    from deepinfer_tiny import checkpoint_path

    folder = tmp_path_factory.mktemp("checkpoint")
    for file in Path(checkpoint_path()).iterdir():
        if file.name != "tokenizer.json":
            (folder / file.name).symlink_to(file)
    data = json.loads((Path(checkpoint_path()) / "tokenizer.json").read_text(encoding="utf-8"))
    words = data["model"]["vocab"]
    assert [word for word in words if "\u00f4" in word] == ["\u00f4"]
    words["aaaaaaaaaaaa"] = words.pop("\u00f4")
    (folder / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    with opened(str(folder), **{"components.grammar.use": component}) as llm:
        yield llm


@pytest.mark.parametrize(
    ("kind", "grammar", "place"),
    [
        ("regex", "\U0010ffff+", "U\\+10FFFF at character 0"),
        ("ebnf", 'a ::= "x"\nroot ::= "\U0010ffff" a', "U\\+10FFFF at character 10"),
        ("choice", ["\U0010ffff", "\U0010fffe"], "#: .*U\\+10FFFE"),
    ],
)
def test_one_that_no_token_can_begin_is_refused(
    poor: LLM, kind: str, grammar: Any, place: str
) -> None:
    found = failed(poor, alone_in(poor), kind, grammar)
    assert "no token of the vocabulary can begin" in str(found.error)
    assert re.search(place, str(found.error)), found.error


def test_one_that_no_token_can_go_on_with_ends_there(poor: LLM) -> None:
    alone = alone_in(poor)
    plain, held, found = answers(poor, PLAIN, good(), bad("regex", "ab\U0010ffff"))
    assert (plain.token_ids, held.token_ids) == alone
    assert (found.finish_reason, found.text) == ("error", "ab")
    assert "no token may be drawn" in str(found.error)
    assert "grammar" in str(found.error)
