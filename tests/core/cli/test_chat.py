"""``deepinfer chat``: turns from a pipe, history, interrupts and failures."""

import builtins
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.sampling_params import SamplingParams

pytest.importorskip("deepseek_recipe", reason="pip install deepseek-recipe==0.2.0 runs these")

Run = Callable[..., subprocess.CompletedProcess[str]]
GREEDY = ("--temperature", "0", "--max-tokens", "3")


class Lines(StringIO):
    """What is typed."""

    is_terminal = False

    def isatty(self) -> bool:
        return self.is_terminal


@pytest.fixture
def chat(deepinfer: Run, byte_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the verb with lines on standard input."""

    def run(text: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "stdin", Lines(text))
        small = ("--set", "engine.max_model_len=256", "--model", str(byte_checkpoint))
        return deepinfer("chat", *GREEDY, *arguments, *small, **environ)

    return run


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[dict[str, str]]]:
    """The conversations that were put to the model."""
    seen: list[list[dict[str, str]]] = []
    encode = LLM.encode_chat

    def recorded(llm: LLM, messages: Any, thinking: Any = "off") -> list[int]:
        seen.append([dict(message) for message in messages])
        return encode(llm, messages, thinking)

    monkeypatch.setattr(LLM, "encode_chat", recorded)
    return seen


def answers(byte_checkpoint: Path, messages: list[dict[str, str]]) -> str:
    with LLM(byte_checkpoint, max_model_len=256) as llm:
        return llm.chat(messages, SamplingParams(temperature=0, max_tokens=3)).text


def test_each_line_is_a_turn_and_history_is_kept(
    chat: Run, byte_checkpoint: Path, asked: list[list[dict[str, str]]]
) -> None:
    done = chat("hello\n\nagain\n")
    first = answers(byte_checkpoint, [{"role": "user", "content": "hello"}]).lstrip("\n")
    history = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "again"},
    ]
    assert asked[1:3] == [history[:1], history]
    second = answers(byte_checkpoint, history).lstrip("\n")
    assert (done.returncode, done.stdout) == (0, f"{first}\n{second}\n")


def test_instructions_come_first_and_survive_a_reset(
    chat: Run, asked: list[list[dict[str, str]]]
) -> None:
    chat("a\n/reset\nb\n", "--system", "Be brief.")
    system = {"role": "system", "content": "Be brief."}
    assert asked[1:] == [[system, {"role": "user", "content": text}] for text in "ab"]


def test_exit_ends_the_conversation(chat: Run, asked: list[list[dict[str, str]]]) -> None:
    assert chat("/exit\nnot asked\n").stdout == ""
    assert len(asked) == 1


def test_an_unknown_command_is_refused_and_not_asked(
    chat: Run, asked: list[list[dict[str, str]]]
) -> None:
    done = chat("/hepl\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        "error: unknown command /hepl",
        "hint: there are /reset, /exit and /quit",
    ]
    assert len(asked) == 1


def test_a_sentence_or_a_path_that_begins_with_a_slash_is_asked(
    chat: Run, asked: list[list[dict[str, str]]]
) -> None:
    assert chat("/etc/hosts\n/reset is what?\n").returncode == 0
    questions = [messages[-1]["content"] for messages in asked[1:]]
    assert questions == ["/etc/hosts", "/reset is what?"]


def test_the_end_of_input_on_a_terminal_ends_the_line_of_the_prompt(
    chat: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lines, "is_terminal", True)
    assert chat("").stderr.endswith("\n> \n")


def test_a_turn_that_does_not_fit_is_taken_back(
    chat: Run, asked: list[list[dict[str, str]]]
) -> None:
    done = chat("x" * 300 + "\nshort\n")
    assert done.returncode == 1
    assert "error: the prompt has 30" in done.stderr
    assert asked[2] == [{"role": "user", "content": "short"}]


def test_an_interrupt_stops_the_answer_and_not_the_program(
    chat: Run, asked: list[list[dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = LLM.stream
    calls = []

    def interrupted_once(llm: LLM, *arguments: Any) -> Any:
        calls.append(arguments)
        deltas = stream(llm, *arguments)
        yield next(deltas)
        if len(calls) == 1:
            raise KeyboardInterrupt
        yield from deltas

    monkeypatch.setattr(LLM, "stream", interrupted_once)
    done = chat("one\ntwo\n")
    assert done.returncode == 0
    assert "[stopped]" in done.stderr
    assert [message["content"] for message in asked[2]][::2] == ["one", "two"]


def test_thinking_is_asked_for_and_left_out_of_a_piped_answer(
    chat: Run, byte_checkpoint: Path
) -> None:
    done = chat("hello\n", "--thinking", "low")
    # Three tokens of a random model hold no end of reasoning, so there is no answer yet.
    assert (done.returncode, done.stdout) == (0, "\n")


def test_a_missing_library_is_named_with_the_way_to_get_it(
    chat: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *arguments: Any) -> Any:
        if name == "deepseek_recipe":
            raise ImportError(name)
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", missing)
    done = chat("hello\n")
    assert done.returncode == 2
    assert "hint: pip install deepseek-recipe==0.2.0" in done.stderr


def test_bad_sampling_values_are_found_before_the_model_is_loaded(deepinfer: Run) -> None:
    done = deepinfer("chat", "--top-p", "2", "--model", "/nowhere")
    assert done.returncode == 2
    assert done.stderr.startswith("error: top_p is 2.0")
