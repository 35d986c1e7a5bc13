"""How does a file of requests become a file of answers, also across several runs?

The same command goes on where an earlier run stopped, however that one ended. Answers go to the
output file only; progress and problems to standard error. Exit status: 0 every request of the file
is answered and none failed, 1 some failed, 2 the files or options cannot be used and nothing was
run, 130 interrupted.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from deepinfer_core.cli.generation import (
    add_model_arguments,
    model_settings,
    open_llm,
    progress_of,
)
from deepinfer_core.cli.output import complain
from deepinfer_core.cli.parser import UsageError
from deepinfer_core.errors import ConfigError, RequestError, WeightsError

if TYPE_CHECKING:
    from deepinfer_core.batch.input_file import Scan
    from deepinfer_core.batch.output_file import OutputFile
    from deepinfer_core.batch.run import Service
    from deepinfer_core.config import LoadedSettings
    from deepinfer_core.engine.llm import LLM
    from deepinfer_core.telemetry.progress import ProgressStream

__all__ = ["add_arguments", "run"]

_FAILED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "input",
        type=Path,
        metavar="INPUT",
        help='a JSONL file; each line is {"custom_id", "method": "POST", "url", "body"}',
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="OUTPUT",
        help="one line an answer is appended; what is answered there is not run again",
    )
    add_model_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Answer what is not answered yet; 0 if no request of the file failed."""
    from deepinfer_core.batch.input_file import scan_input
    from deepinfer_core.batch.output_file import OutputFile

    _refuse_same_file(args.input, args.output)
    loaded = model_settings(args)
    progress = progress_of(loaded)
    with OutputFile(args.output) as output:
        before = len(output.answered)
        with progress.phase("batch.scan"):
            scan = scan_input(args.input, output.answered)
        if len(output.answered) < scan.requests:
            with open_llm(loaded, progress) as llm:
                _answer(args.input, scan, output, _service(llm, loaded), progress)
        failed, answered = output.failed, len(output.answered) - before
    if failed:
        advice = f"their lines in {args.output} say why"
        complain(f"{failed} of {scan.requests} requests failed", advice)
        return _FAILED
    complain(f"{scan.requests} requests, {answered} of them now", "", kind="answered")
    return 0


def _refuse_same_file(source: Path, output: Path) -> None:
    if not source.exists():
        raise ConfigError(f"{source} does not exist", hint="name a readable file")
    if output.exists() and source.samefile(output):
        raise UsageError("INPUT and OUTPUT are one file", hint="name another output")


def _service(llm: LLM, loaded: LoadedSettings) -> Service:
    from deepinfer_core.batch.fingerprint import fingerprint_of
    from deepinfer_core.batch.run import Service
    from deepinfer_core.config.checkpoints import served_names

    return Service(
        open_stream=lambda: llm.stream([]),
        encode_chat=llm.encode_chat,
        tokenizer=llm.engine.tokenizer,
        fingerprint=fingerprint_of(llm.loaded, loaded.settings),
        engine_seed=loaded.settings.engine.seed,
        seats=llm.engine.batch.limits.max_sequences,
        model=served_names(loaded.settings)[0],
    )


def _answer(
    source: Path, scan: Scan, output: OutputFile, service: Service, progress: ProgressStream
) -> None:
    from deepinfer_core.batch.input_file import read_lines
    from deepinfer_core.batch.run import answer_lines

    if output.fingerprints - {service.fingerprint}:
        raise ConfigError(
            "the answers in the output come from another checkpoint, version or settings",
            hint="run with those again, or name a new output",
        )
    if scan.unanswered_chats:
        _need_chat_library(service)
    lines = read_lines(source, scan, output.answered)
    with progress.phase("batch.requests", total=scan.requests, unit="requests") as phase:
        phase.advance_to(len(output.answered))
        for answer in answer_lines(service, lines):
            output.append(answer)
            phase.advance()


def _need_chat_library(service: Service) -> None:
    """Raise before anything runs if no conversation can be written for want of a library."""
    try:
        service.encode_chat([{"role": "user", "content": "?"}])
    except (RequestError, WeightsError):
        return  # this checkpoint cannot chat: the affected requests are told so, one by one
