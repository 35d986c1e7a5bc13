"""Do lines of every kind become the conversations that they describe?"""

import json
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.bench.serve.prompt_folder import read_folder
from deepinfer_core.bench.serve.scripts import Script, continued, known_messages
from deepinfer_core.errors import ConfigError


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


TOOL = {"type": "function", "function": {"name": "f"}}
OTHER = {"type": "function", "function": {"name": "g"}}


def script(folder: Path, **line: Any) -> Script:
    (folder / "systems.json").write_text('{"s": "be brief"}')
    (folder / "toolsets.json").write_text(json.dumps({"one": [TOOL], "two": [OTHER]}))
    (folder / "lines.jsonl").write_text(json.dumps({"id": 5, **line}) + "\n\n")
    (found,) = read_folder(folder)
    return found


def test_user_turns_are_asked_one_after_the_other(tmp_path: Path) -> None:
    found = script(tmp_path, kind="chat", user_turns=["a", "b"])
    assert found == Script(name="5", kind="chat", turns=((user("a"),), (user("b"),)))


def test_a_document_stands_before_the_first_question(tmp_path: Path) -> None:
    found = script(tmp_path, kind="long_document", document="D", user_turns=["a", "b"])
    assert found.turns == ((user("D\n\na"),), (user("b"),))


def test_a_request_brings_its_tools_along(tmp_path: Path) -> None:
    found = script(tmp_path, kind="tool_call", messages=[user("a")], tools=[TOOL])
    assert (found.turns, found.fields) == (((user("a"),),), {"tools": [TOOL]})


def test_named_toolsets_and_systems_are_looked_up_in_order(tmp_path: Path) -> None:
    found = script(
        tmp_path,
        kind="tool_call_multi_turn",
        system="s",
        toolsets=["two", "one"],
        user_turns=[["a"], [], [user("b"), user("c")]],
    )
    system = {"role": "system", "content": "be brief"}
    assert found.turns == ((system, user("a")), (user("b"), user("c")))
    assert found.fields == {"tools": [OTHER, TOOL]}


def test_a_recorded_conversation_is_asked_wherever_a_service_answered(tmp_path: Path) -> None:
    tool = {"role": "tool", "content": "r"}
    messages = [user("a"), assistant("b"), tool, assistant("c"), user("d"), assistant("e")]
    found = script(tmp_path, kind="agent_trace", messages=messages)
    assert found.turns == ((user("a"),), (assistant("b"), tool), (assistant("c"), user("d")))


@pytest.mark.parametrize(
    ("key", "value", "form"),
    [
        ("response_format", {"type": "json_object"}, {"type": "json_object"}),
        ("regex", "a|b", {"type": "regex", "regex": "a|b"}),
    ],
)
def test_forms_of_answers_are_handed_on(
    tmp_path: Path, key: str, value: Any, form: dict[str, str]
) -> None:
    found = script(tmp_path, kind="regex", messages=[user("a")], **{key: value})
    assert found.fields == {"response_format": form}


def test_a_completion_is_a_text(tmp_path: Path) -> None:
    assert script(tmp_path, kind="completion", prompt="Once").turns == ((user("Once"),),)


def test_only_wanted_kinds_are_read(tmp_path: Path) -> None:
    lines = [
        {"id": 1, "kind": "chat", "user_turns": ["a"]},
        {"id": 2, "kind": "completion", "prompt": "b"},
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert [one.name for one in read_folder(tmp_path, ["completion"])] == ["2"]
    with pytest.raises(ConfigError, match="no prompts of kind regex") as caught:
        read_folder(tmp_path, ["regex"])
    assert caught.value.hint == "kinds that are there: chat, completion"


@pytest.mark.parametrize(
    "line",
    ["{", "[1]", '{"id": 1}', '{"id": 1, "kind": "new"}', '{"id": 1, "kind": "chat"}',
     '{"id": 1, "kind": "chat", "user_turns": []}',
     '{"id": 1, "kind": "tool_call", "messages": []}',
     '{"id": 1, "kind": "chat", "user_turns": ["a"], "toolsets": ["none"]}'],
)  # fmt: skip
def test_a_line_that_is_no_prompt_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "x.jsonl").write_text(f"\n{line}")
    with pytest.raises(ConfigError, match=r"x\.jsonl:2 is"):
        read_folder(tmp_path)


def test_an_empty_folder_has_no_prompts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no prompts"):
        read_folder(tmp_path)


def test_an_answer_joins_the_conversation_unless_a_recorded_one_does() -> None:
    history = (user("a"),)
    assert continued(history, "x", [user("b")]) == (user("a"), assistant("x"), user("b"))
    assert continued(history, "", [user("b")]) == (user("a"), user("b"))
    recorded = [assistant("y"), user("b")]
    assert continued(history, "x", recorded) == (user("a"), assistant("y"), user("b"))


def test_what_is_known_of_a_script_ends_where_an_answer_is_needed() -> None:
    asked = Script(name="", kind="", turns=((user("a"),), (user("b"),)))
    recorded = Script(name="", kind="", turns=((user("a"),), (assistant("y"), user("b"))))
    assert known_messages(asked) == (user("a"),)
    assert known_messages(recorded) == (user("a"), assistant("y"), user("b"))
