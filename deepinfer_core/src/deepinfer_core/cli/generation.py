"""Which options do verbs that run the model share, and how do they open it?"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from deepinfer_core.cli.parser import UsageError, add_settings_arguments, settings_from

if TYPE_CHECKING:
    from deepinfer_core.config import LoadedSettings
    from deepinfer_core.engine.grammar_request import GrammarRequest
    from deepinfer_core.engine.llm import LLM
    from deepinfer_core.engine.sampling_params import SamplingParams
    from deepinfer_core.telemetry.progress import ProgressStream

__all__ = [
    "add_model_arguments",
    "add_sampling_arguments",
    "model_settings",
    "open_llm",
    "progress_of",
    "sampling_params",
]


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose and configure the model."""
    parser.add_argument(
        "--model",
        metavar="DIR",
        help="folder of the checkpoint; default: model.path of the settings, or the installed one",
    )
    add_settings_arguments(parser)


def add_sampling_arguments(parser: argparse.ArgumentParser, *, max_tokens: int) -> None:
    """Add the options that say how tokens are drawn and when an answer ends."""
    add = parser.add_argument_group("sampling").add_argument
    add("--max-tokens", type=int, default=max_tokens, metavar="N", help=f"default {max_tokens}")
    add("--temperature", type=float, default=1.0, metavar="T", help="0 is greedy; default 1")
    add("--top-p", type=float, default=1.0, metavar="P", help="above 0 up to 1; default 1")
    add("--top-k", type=int, default=-1, metavar="K", help="-1 (default) for all")
    add("--min-p", type=float, default=0.0, metavar="P", help="0 up to below 1; default 0")
    add("--repetition-penalty", type=float, default=1.0, metavar="R", help="default 1: none")
    add("--frequency-penalty", type=float, default=0.0, metavar="X", help="-2 to 2; default 0")
    add("--presence-penalty", type=float, default=0.0, metavar="X", help="-2 to 2; default 0")
    add(
        "--logit-bias",
        action="append",
        metavar="ID=VALUE",
        help="-100 to 100, added to the logit of a token id; may be repeated",
    )
    add("--seed", type=int, metavar="N", help="0 to 2^64 - 1; default: a new one each time")
    add("--stop", action="append", metavar="TEXT", help="text that ends it; may be repeated")
    add("--ignore-eos", action="store_true", help="go on after the end-of-sequence token")
    _add_grammar_arguments(parser)


def _add_grammar_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("structured output")
    one = group.add_mutually_exclusive_group()
    for option, what in (
        ("--json-schema", "answer with JSON of this schema"),
        ("--regex", "answer with a text that this regular expression matches as a whole"),
        ("--ebnf", "answer with a text of this grammar, whose start rule is root"),
    ):
        one.add_argument(option, metavar="TEXT", help=f"{what}; @FILE reads it from a file")


def _grammar(args: argparse.Namespace) -> GrammarRequest | None:
    """What the options ask of the text.

    Raises:
        UsageError: a file cannot be read.
    """
    from deepinfer_core.engine.grammar_request import GrammarRequest

    for kind in ("json_schema", "regex", "ebnf"):
        text = getattr(args, kind, None)
        if text is not None:
            return GrammarRequest(kind=kind, grammar=_text_or_file(kind, text))
    return None


def _text_or_file(kind: str, text: str) -> str:
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--{kind.replace('_', '-')} {text}: {error}", hint="give a text, or @ and a file"
        ) from error


def sampling_params(args: argparse.Namespace, *, n: int = 1) -> SamplingParams:
    """The sampling options as one checked value.

    Args:
        args: of the command line.
        n: answers to each prompt.

    Raises:
        RequestError: a value is out of range.
        UsageError: a bias is not written as ID=VALUE.
    """
    from deepinfer_core.engine.sampling_params import SamplingParams

    return SamplingParams(
        n=n,
        max_tokens=args.max_tokens,
        temperature=args.temperature,
        top_p=args.top_p,
        top_k=args.top_k,
        min_p=args.min_p,
        repetition_penalty=args.repetition_penalty,
        frequency_penalty=args.frequency_penalty,
        presence_penalty=args.presence_penalty,
        logit_bias=[_bias(text) for text in args.logit_bias or ()],
        seed=args.seed,
        stop=args.stop,
        ignore_eos=args.ignore_eos,
        grammar=_grammar(args),
    )


def _bias(text: str) -> tuple[int, float]:
    token, _, value = text.partition("=")
    try:
        return int(token), float(value)
    except ValueError:
        raise UsageError(
            f"--logit-bias is {text!r}", hint="write a token id and a number, like 42=-5"
        ) from None


def model_settings(args: argparse.Namespace) -> LoadedSettings:
    """The settings, ``--model`` included.

    Raises:
        ConfigError: see ``load_settings``.
    """
    if args.model is not None:
        args.overrides = [*args.overrides, f"model.path={args.model}"]
    loaded = settings_from(args)
    if loaded.settings.components.grammar.use == "none" and _grammar(args) is not None:
        args.overrides = [*args.overrides, "components.grammar.use=auto"]
        return settings_from(args)
    return loaded


def progress_of(loaded: LoadedSettings, *, has_lines: bool = False) -> ProgressStream:
    """Set up logging, and show progress on standard error: as events, and as bars on a terminal.

    Args:
        loaded: the settings.
        has_lines: show lines where there is no terminal, as the verb does nothing else for long.
    """
    from deepinfer_core.telemetry.logs import configure_logging
    from deepinfer_core.telemetry.progress import ProgressStream
    from deepinfer_core.telemetry.reports import progress_consumers

    configure_logging(loaded.settings.telemetry)
    if sys.stderr is None:
        return ProgressStream()
    telemetry = loaded.settings.telemetry
    return ProgressStream(*progress_consumers(telemetry, sys.stderr, has_lines=has_lines))


def open_llm(loaded: LoadedSettings, progress: ProgressStream) -> LLM:
    """Load the model; raises what ``LLM`` raises."""
    from deepinfer_core.engine.llm import LLM

    return LLM.from_settings(loaded, progress)
