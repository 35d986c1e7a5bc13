"""How does one talk to the model in a terminal?

Each line of input is a turn. Answers are streamed to standard output; prompts and notes go to
standard error, so that the answers of a script can be piped on. Ctrl-C ends the answer, not the
program; ``/exit`` or the end of input ends the program. A line of one word behind a slash that is
no command is refused: it is a slip, not a question.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, Any

from deepinfer_core.cli.generation import (
    add_model_arguments,
    add_sampling_arguments,
    model_settings,
    open_llm,
    progress_of,
    sampling_params,
)
from deepinfer_core.cli.output import complain
from deepinfer_core.errors import DeepInferError, RequestError

if TYPE_CHECKING:
    from deepinfer_core.engine.llm import LLM
    from deepinfer_core.engine.sampling_params import SamplingParams

__all__ = ["add_arguments", "run"]

_MAX_TOKENS = 512
_EXIT_WORDS = ("/exit", "/quit")
_RESET_WORD = "/reset"
_COMMAND = re.compile(r"/\w+")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--system", metavar="TEXT", help="instructions before the conversation")
    parser.add_argument(
        "--thinking",
        choices=("off", "low", "high", "max"),
        default="off",
        help="effort of reasoning before the answer; default off",
    )
    add_sampling_arguments(parser, max_tokens=_MAX_TOKENS)
    add_model_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Converse until the input ends; 1 if an answer failed or a command was refused."""
    params = sampling_params(args)
    loaded = model_settings(args)
    with open_llm(loaded, progress_of(loaded)) as llm:
        llm.encode_chat([{"role": "user", "content": "?"}])  # a missing library shows at once
        session = _Session(llm, params, args.system, args.thinking)
        if sys.stdin is not None and sys.stdin.isatty():
            _note("one line is one turn; /reset forgets, /exit ends, Ctrl-C stops an answer")
        while (line := _read_line()) is not None:
            if line.strip() in _EXIT_WORDS:
                break
            if line.strip() == _RESET_WORD:
                session.forget()
            elif _COMMAND.fullmatch(line.strip()):
                session.refuse(line.strip())
            elif line.strip():
                session.turn(line)
    return 1 if session.failures else 0


class _Session:
    """One conversation."""

    def __init__(self, llm: LLM, params: SamplingParams, system: str | None, thinking: Any) -> None:
        self.llm = llm
        self.params = params
        self.thinking = thinking
        self.failures = 0
        self._opening = [] if system is None else [{"role": "system", "content": system}]
        self.messages: list[dict[str, str]] = []
        self.forget()

    def forget(self) -> None:
        """Start over."""
        self.messages = list(self._opening)

    def refuse(self, command: str) -> None:
        """Say which commands there are; nothing is asked."""
        self.failures += 1
        complain(
            f"unknown command {command}", f"there are {_RESET_WORD}, {' and '.join(_EXIT_WORDS)}"
        )

    def turn(self, text: str) -> None:
        """Answer one line. A turn that fails is taken back, so that the next one can succeed."""
        self.messages.append({"role": "user", "content": text})
        try:
            answer = self._answer()
        except RequestError as error:
            self.messages.pop()
            self.failures += 1
            complain(error.message, error.hint and f"{error.hint}; {_RESET_WORD} starts over")
            return
        self.messages.append({"role": "assistant", "content": answer})

    def _answer(self) -> str:
        """Print the answer as it comes; what was printed is the answer, even if it was stopped."""
        from deepinfer_core.engine.answer import AnswerStream

        ids = self.llm.encode_chat(self.messages, self.thinking)
        answer = AnswerStream(self.llm.tokenizer, is_thinking=self.thinking != "off")
        error: DeepInferError | None = None
        try:
            for delta in self.llm.stream([ids], self.params):
                answer.push(delta)
                self._print(answer)
                if delta.completion is not None:
                    error = delta.completion.error
        except KeyboardInterrupt:
            _note("\n[stopped]")
        print(flush=True)
        if error is not None:
            raise error
        return answer.answer

    def _print(self, answer: Any) -> None:
        reasoning, text = answer.take()
        if reasoning and sys.stderr is not None and sys.stderr.isatty():
            print(f"\x1b[2m{reasoning}\x1b[0m", end="", file=sys.stderr, flush=True)
        print(text, end="", flush=True)


def _read_line() -> str | None:
    """The next line; None at the end of input. Ctrl-C at the prompt ends the program."""
    if sys.stdin is None:
        return None
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        print("> ", end="", file=sys.stderr, flush=True)
    line = ""
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError as error:
        raise RequestError(f"standard input is not text: {error}", hint="send UTF-8") from error
    finally:
        if is_terminal and not line:
            _note("")  # what comes next does not stand behind the prompt
    return line.rstrip("\r\n") if line else None


def _note(text: str) -> None:
    if sys.stderr is not None:
        print(text, file=sys.stderr, flush=True)
