"""What does the ``deepinfer`` command do with its arguments and with what goes wrong?

The first argument chooses a verb; only that verb's module is imported. A failure becomes one line
``error: ...`` and, where there is advice, one line ``hint: ...`` on standard error. Exit status: 0
done, 1 failed, 2 wrong usage or nothing usable, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence

from deepinfer_core.cli.output import complain
from deepinfer_core.errors import ConfigError, DeepInferError, NoUsableComponent, RequestError

__all__ = ["main"]

_FAILED = 1
_WRONG_USAGE = 2
_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb.

    Args:
        argv: arguments without the program's name; None takes those of the process.

    Returns:
        The exit status. Never raises for what a user or a plugin did.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    traceback_wanted = arguments[:1] == ["--traceback"]
    if sys.stdout is None:
        # Without a descriptor to write to, print would drop everything without a word.
        complain("standard output is closed", "")
        return _FAILED
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        return _run(arguments[1:] if traceback_wanted else arguments)
    except DeepInferError as error:
        if traceback_wanted:
            raise
        complain(error.message, error.hint)
        wrong_usage = isinstance(error, ConfigError | NoUsableComponent | RequestError)
        return _WRONG_USAGE if wrong_usage or error.code == "usage_error" else _FAILED
    except KeyboardInterrupt:
        complain("interrupted", "")
        return _INTERRUPTED
    except BrokenPipeError:
        _silence_stdout()  # whoever read has seen enough, as ``head`` has
        return _FAILED
    except OSError as error:
        if traceback_wanted:
            raise
        _silence_stdout()
        where = f": {error.filename}" if error.filename else ""
        complain(f"{error.strerror or type(error).__name__}{where}", "")
        return _FAILED
    except Exception as error:
        if traceback_wanted:
            raise
        complain(
            f"unexpected {type(error).__name__}: {' '.join(str(error).split())}",
            f"a defect; deepinfer --traceback {' '.join(arguments)} shows where",
        )
        return _FAILED


def _run(arguments: Sequence[str]) -> int:
    from deepinfer_core.cli.verbs import parse

    try:
        verb, namespace = parse(arguments)
        status = 0 if verb is None else verb(namespace)
    except SystemExit as done:
        # argparse leaves this way after --help and --version.
        status = done.code if isinstance(done.code, int) else 0 if done.code is None else _FAILED
    sys.stdout.flush()
    return status


def _silence_stdout() -> None:
    """Keep the interpreter from failing once more when it flushes at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
