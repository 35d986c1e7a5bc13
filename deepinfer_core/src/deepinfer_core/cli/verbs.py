"""Which verbs exist, and which module runs each?

A verb is one module with ``add_arguments(parser)`` and ``run(args) -> int``. To add one, write the
module and add its line to the table; plugins add theirs through ``deepinfer_cli_verbs``. A plugin
is loaded only when its verb may be needed: for the list in ``--help`` and for an unknown word.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from types import MappingProxyType
from typing import Any

from deepinfer_core import __version__
from deepinfer_core.cli.parser import Parser, UsageError
from deepinfer_core.errors import ConfigError, DeepInferError, PluginFailed

__all__ = ["VERBS", "Verb", "parse"]

Run = Callable[[argparse.Namespace], int]


@dataclass(frozen=True, slots=True)
class Verb:
    """One line of ``--help``.

    Attributes:
        module: imported when the verb is chosen.
        summary: what it does, in a few words.
        distribution: who offers it; empty for the core.
    """

    module: str
    summary: str
    distribution: str = ""


VERBS: Mapping[str, Verb] = MappingProxyType(
    {
        "generate": Verb("deepinfer_core.cli.generate", "text from a prompt"),
        "chat": Verb("deepinfer_core.cli.chat", "a conversation in the terminal"),
        "batch": Verb("deepinfer_core.cli.batch", "a file of requests, resumable"),
        "serve": Verb("deepinfer_core.cli.serve", "answer requests over HTTP"),
        "cache": Verb("deepinfer_core.cli.cache", "look after a store of blocks"),
        "bench": Verb("deepinfer_core.cli.bench", "how fast, next to what this machine could do"),
        "eval": Verb("deepinfer_core.cli.eval", "logits, guesses of the drafter, the quality gate"),
        "kernels": Verb("deepinfer_core.cli.kernels", "compile ahead of time, without a device"),
        "check": Verb("deepinfer_core.cli.check", "can this configuration run here?"),
        "plugins": Verb("deepinfer_core.cli.plugins", "every component with its state and reason"),
        "config": Verb("deepinfer_core.cli.config", "every setting with its origin"),
        "checkpoint": Verb("deepinfer_core.cli.checkpoint", "inspect, verify, make a random one"),
        "env": Verb("deepinfer_core.cli.env", "what a bug report needs"),
    }
)
"""Verbs of the core, in the order of ``--help``."""


def parse(arguments: Sequence[str]) -> tuple[Run | None, argparse.Namespace]:
    """Find the verb and parse its arguments.

    Returns:
        The verb's function and its arguments; None after ``--version`` or ``--help``.

    Raises:
        UsageError: no verb, an unknown verb, or arguments that it does not take.
        SystemExit: the verb's own ``--help`` was printed.
    """
    if not arguments:
        raise UsageError("no verb was given", hint="deepinfer --help lists them")
    word, *rest = arguments
    if word in ("-h", "--help"):
        print(_help())
        return None, argparse.Namespace()
    if word in ("-V", "--version"):
        print(f"deepinfer {__version__}")
        return None, argparse.Namespace()
    verb = VERBS.get(word) or _foreign(word)
    module = _module(verb)
    parser = Parser(prog=f"deepinfer {word}", description=verb.summary)
    if verb.distribution:
        _guarded(module.add_arguments, verb)(parser)
        return _guarded(module.run, verb), parser.parse_args(rest)
    module.add_arguments(parser)
    run: Run = module.run
    return run, parser.parse_args(rest)


def _guarded(function: Callable[[Any], Any], verb: Verb) -> Callable[[Any], int]:
    """A plugin's function, with whatever it raises or exits with as that plugin's failure."""

    def call(argument: Any) -> int:
        try:
            status = function(argument)
        except (DeepInferError, BrokenPipeError):
            raise
        except (Exception, SystemExit) as error:
            raise PluginFailed(
                f"{verb.module} of {verb.distribution} broke: {type(error).__name__}: {error}",
                hint="deepinfer --traceback before the verb shows where",
            ) from error
        if status is not None and type(status) is not int:
            raise PluginFailed(
                f"{verb.module} of {verb.distribution} gave {type(status).__name__}, expected an"
                " exit status",
                hint="report this to its authors",
            )
        return status or 0

    return call


def _module(verb: Verb) -> Any:
    if not verb.distribution:
        return import_module(verb.module)
    try:
        module = import_module(verb.module)
        _ = (module.add_arguments, module.run)
    except (Exception, SystemExit) as error:
        raise PluginFailed(
            f"{verb.module} of {verb.distribution} cannot be used as a verb: "
            f"{type(error).__name__}: {error}"
        ) from error
    return module


def _foreign(word: str) -> Verb:
    if word.startswith("-"):
        raise UsageError(f"{word} before the verb", hint="deepinfer VERB [options]")
    verbs, broken = _offered()
    named = [verb for name, verb in verbs if name == word]
    if len(named) > 1:
        owners = " and ".join(verb.distribution for verb in named)
        raise UsageError(f"{owners} both offer the verb {word!r}", hint="block one: plugins.block")
    if named:
        return named[0]
    close = get_close_matches(word, [*VERBS, *(name for name, _ in verbs)], n=2, cutoff=0.6)
    hint = f"did you mean {' or '.join(close)}?" if close else "deepinfer --help lists them"
    if broken:
        hint += f"; {_broken(broken)}"
    raise UsageError(f"unknown verb {word!r}", hint=hint)


def _offered() -> tuple[list[tuple[str, Verb]], int]:
    """Verbs of plugins, sorted, and how many plugins are broken. The core's names are taken."""
    from deepinfer_core.plugin.discovery import installed_plugins

    if all(plugin.is_core for plugin in installed_plugins()):
        return [], 0
    from deepinfer_core.config import load_settings
    from deepinfer_core.config.resolution import load_policy
    from deepinfer_core.plugin.loading import load_plugins

    try:
        plugins = load_plugins(load_policy(load_settings().settings))
    except ConfigError:
        # Help must work with a broken configuration; the verb itself will name the error.
        return [], 0
    verbs = [
        (spec.name, Verb(spec.module, spec.summary, plugin.distribution))
        for spec, plugin in plugins.verbs
        if spec.name not in VERBS
    ]
    return sorted(verbs, key=lambda item: (item[0], item[1].distribution)), len(plugins.failed)


def _help() -> str:
    foreign, broken = _offered()
    width = max(len(name) for name in [*VERBS, *(name for name, _ in foreign)])
    lines = ["usage: deepinfer VERB [options]", "", "verbs:"]
    lines += [f"  {name:{width}}  {verb.summary}" for name, verb in VERBS.items()]
    lines += [
        f"  {name:{width}}  {verb.summary} (from {verb.distribution})" for name, verb in foreign
    ]
    lines += [
        "",
        "  -h, --help     this list; deepinfer VERB --help explains one verb",
        "  -V, --version  the version",
        "  --traceback    before a verb: show where an error was raised",
    ]
    if broken:
        lines += ["", _broken(broken)]
    return "\n".join(lines)


def _broken(count: int) -> str:
    return f"{count} installed plugin(s) cannot be loaded: deepinfer plugins says why"
