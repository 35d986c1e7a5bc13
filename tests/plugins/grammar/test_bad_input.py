"""Does a bad grammar fail its request alone, with a message that says what and where?

Through ``LLM.generate`` with the shipped checkpoint: beside each bad request runs one without a
grammar and one with a good grammar, and both draw what they draw alone.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.config import load_settings

from deepinfer_core import LLM, Completion, SamplingParams

pytest.importorskip("deepinfer_tiny", reason="needs the tiny checkpoint")

PLAIN = SamplingParams(max_tokens=10, seed=1)
GOOD = SamplingParams(
    max_tokens=40, seed=1, grammar={"kind": "regex", "grammar": r"([a-z]{2,8} ){2,4}[a-z]{2,8}!"}
)
PROMPT = "Once upon a time"
TIMEOUT_S = 4.0

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
    "a number that JSON has not": ("json_schema", '{"maximum": NaN}', "holds NaN"),
    "a literal that is not closed": ("ebnf", 'root ::= "a', "closing quote at character 9"),
    "a rule that does not exist": ("ebnf", "root ::= foo", "'foo' at character 9"),
    "two rules of one name": ("ebnf", 'root ::= "a"\nroot ::= "b"', "'root' at character 13"),
    "a choice that is no JSON": ("choice", '["a"', "at character 4"),
    "a choice of nothing": ("choice", [], "an empty list"),
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
    "a deep schema": ("json_schema", '{"items":' * 50000 + "{}" + "}" * 50000, "over 200 values"),
    "a rule repeated too often": (
        "ebnf", 'root ::= "a"{100000000}', "over 10000 times at character 12",
    ),
    "many items": ("json_schema", {"type": "array", "minItems": 10**7}, "#: over 5000 items"),
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
        "matches no text at all",
    ),
    "a list of lists that are never empty": (
        "json_schema",
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
        "matches no text at all",
    ),
    "a rule without another way out": ("ebnf", 'root ::= "a" root', "matches no text at all"),
    "a rule that begins with itself": ("ebnf", 'root ::= root "a"', "matches no text at all"),
}
UNSATISFIABLE: dict[str, Case] = {
    "no number is large and small": (
        "json_schema", {"type": "integer", "minimum": 5, "maximum": 4}, "matches no text",
    ),
    "no text is null": (
        "json_schema", {"allOf": [{"type": "string"}, {"type": "null"}]}, "matches no text",
    ),
    "nothing at all": ("json_schema", "false", "matches no text"),
    "an empty class": ("regex", r"[^\s\S]", "matches no text"),
    "a beginning in the middle": ("regex", "a^b", "matches no text"),
}  # fmt: skip
LARGE: dict[str, Case] = {
    "a schema of 5 MiB": ("json_schema", {"enum": ["x" * 1000] * 5300}, r"has 5\d{6} bytes"),
    "a regular expression of 5 MiB": ("regex", "a" * (5 << 20), "has 5242880 bytes"),
}
CASES = INVALID | CATASTROPHIC | ENDLESS | UNSATISFIABLE | LARGE


def opened(checkpoint: str | None = None, **more: object) -> LLM:
    api: dict[str, object] = {"grammar.timeout_s": TIMEOUT_S, "grammar.workers": 1, **more}
    if checkpoint is not None:
        api["model.path"] = checkpoint
    return LLM.from_settings(load_settings(None, api=api))


@pytest.fixture(scope="module", params=["grammar.xgrammar", "grammar.llguidance"])
def component(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param.removeprefix("grammar."), reason=f"needs {request.param}")
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def llm(component: str) -> Iterator[LLM]:
    with opened(**{"components.grammar.use": component}) as llm:
        yield llm


@pytest.fixture(scope="module")
def alone(llm: LLM) -> tuple[tuple[int, ...], tuple[int, ...]]:
    plain, good = llm.generate([PROMPT] * 2, [PLAIN, GOOD])
    assert good.finish_reason == "stop"
    return plain.token_ids, good.token_ids


def failed(llm: LLM, alone: Any, kind: str, grammar: Any) -> Completion:
    """The answer to a bad request, behind two good ones that do not notice."""
    bad = SamplingParams(max_tokens=10, seed=1, grammar={"kind": kind, "grammar": grammar})
    plain, good, found = llm.generate([PROMPT] * 3, [PLAIN, GOOD, bad])
    assert (plain.token_ids, good.token_ids) == alone
    assert (found.finish_reason, found.text) == ("error", "")
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_bad_grammar_fails_its_request_with_its_place(llm: LLM, alone: Any, name: str) -> None:
    kind, grammar, message = CASES[name]
    found = failed(llm, alone, kind, grammar)
    assert re.search(message, str(found.error)), found.error


@pytest.mark.slow
def test_one_that_takes_too_long_is_given_up(llm: LLM, alone: Any) -> None:
    found = failed(llm, alone, "regex", r"(\w+\s?\d*\p{L}?){1,60}")
    assert "not compiled within 4 s" in str(found.error)
    assert "grammar.timeout_s" in str(found.error)


@pytest.mark.slow
def test_one_that_takes_too_much_memory_is_refused(component: str) -> None:
    limits = {"grammar.memory_bytes": 48 << 20, "grammar.timeout_s": 60.0}
    with opened(**{"components.grammar.use": component, **limits}) as llm:
        plain, good = llm.generate([PROMPT] * 2, [PLAIN, GOOD])
        texts = [f"{number * 7919}" * 4 for number in range(20000)]
        found = failed(llm, (plain.token_ids, good.token_ids), "choice", texts)
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


def test_one_that_no_token_can_begin_is_refused(poor: LLM) -> None:
    plain, good = poor.generate([PROMPT] * 2, [PLAIN, GOOD])
    found = failed(poor, (plain.token_ids, good.token_ids), "regex", "\U0010ffff+")
    assert "no token of the vocabulary can begin" in str(found.error)


def test_one_that_no_token_can_go_on_with_ends_there(poor: LLM) -> None:
    plain, good = poor.generate([PROMPT] * 2, [PLAIN, GOOD])
    bad = SamplingParams(
        max_tokens=10, seed=1, grammar={"kind": "regex", "grammar": "ab\U0010ffff"}
    )
    answers = poor.generate([PROMPT] * 3, [PLAIN, GOOD, bad])
    assert [one.token_ids for one in answers[:2]] == [plain.token_ids, good.token_ids]
    assert (answers[2].finish_reason, answers[2].text) == ("error", "ab")
    assert "no token may be drawn" in str(answers[2].error)
    assert "grammar" in str(answers[2].error)
