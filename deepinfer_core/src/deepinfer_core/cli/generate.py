"""What follows a prompt?

Standard output gets the generated text only, one line feed behind each; with ``--json`` one object
a prompt and line, in the order of the prompts; with ``--n`` so many of either for each prompt.
Progress and problems go to standard error. A request that fails does not stop the others; the exit
status is then 1, or 2 if the only prompt was refused.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from deepinfer_core.cli.generation import (
    add_model_arguments,
    add_sampling_arguments,
    model_settings,
    open_llm,
    progress_of,
    sampling_params,
)
from deepinfer_core.cli.output import complain
from deepinfer_core.cli.parser import UsageError
from deepinfer_core.cli.prompt_input import Prompt, add_prompt_arguments, prompts_from
from deepinfer_core.errors import DeepInferError, RequestError
from deepinfer_core.telemetry.progress import ProgressStream

if TYPE_CHECKING:
    from deepinfer_core.engine.llm import LLM
    from deepinfer_core.engine.outputs import Completion
    from deepinfer_core.engine.sampling_params import SamplingParams

__all__ = ["add_arguments", "run"]

_MAX_TOKENS = 128
_FAILED = 1
_WRONG_USAGE = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_prompt_arguments(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object a prompt")
    form.add_argument(
        "--stream",
        action=argparse.BooleanOptionalAction,
        help="print text as it comes; default on a terminal with one prompt",
    )
    parser.add_argument("--n", type=int, default=1, metavar="N", help="answers to each; default 1")
    add_sampling_arguments(parser, max_tokens=_MAX_TOKENS)
    add_model_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Generate; 0 if every request ended well."""
    params = sampling_params(args, n=args.n)
    prompts = prompts_from(args)
    if args.stream and len(prompts) > 1:
        raise UsageError(
            f"--stream with {len(prompts)} prompts", hint="stream one prompt, or use --json"
        )
    if args.stream and params.n > 1:
        raise UsageError(f"--stream with --n {params.n}", hint="stream one answer, or use --json")
    if len(prompts) == 1 and not prompts[0] and not args.json:
        raise RequestError("the prompt is empty", hint="give at least one token")
    is_lone_text = len(prompts) == params.n == 1 and not args.json
    is_streaming = sys.stdout.isatty() and is_lone_text if args.stream is None else args.stream
    loaded = model_settings(args)
    progress = progress_of(loaded)
    with open_llm(loaded, progress) as llm:
        if is_streaming:
            return _stream(llm, prompts[0], params)
        # A bar and results on one terminal would run into each other.
        quiet = ProgressStream() if sys.stdout.isatty() else progress
        return _batch(llm, prompts, params, quiet, as_json=args.json)


def _stream(llm: LLM, prompt: Prompt, params: SamplingParams) -> int:
    for delta in llm.stream([prompt], params):
        print(delta.text, end="", flush=True)
        if delta.completion is not None:
            print(flush=True)
            if delta.completion.error is not None:
                raise delta.completion.error
            _tell_cut(delta.completion, params)
    return 0


def _tell_cut(completion: Completion, params: SamplingParams, which: str = "") -> None:
    """Say so where an answer with a form to keep was cut before it had that form."""
    if params.grammar_request is not None and completion.finish_reason == "length":
        tokens = completion.usage.completion_tokens
        complain(
            f"{which}the answer was cut after {tokens} tokens, so it may lack its end",
            "give more --max-tokens, or a grammar that ends sooner",
            kind="warning",
        )


def _batch(
    llm: LLM,
    prompts: list[Prompt],
    params: SamplingParams,
    progress: ProgressStream,
    *,
    as_json: bool,
) -> int:
    failed: list[DeepInferError] = []
    waiting: dict[tuple[int, int], Completion] = {}
    places = [(index, sample) for index in range(len(prompts)) for sample in range(params.n)]
    shown = 0
    with progress.phase("requests", total=len(places), unit="requests") as phase:
        for delta in llm.stream(prompts, params):
            if delta.completion is None:
                continue
            phase.advance()
            waiting[delta.index, delta.sample] = delta.completion
            # In the order of the prompts, each as soon as all before it are done.
            while shown < len(places) and places[shown] in waiting:
                completion = waiting.pop(places[shown])
                failed += _show(completion, len(prompts), params, as_json=as_json)
                shown += 1
    if not failed:
        return 0
    is_refused = len(prompts) == 1 and all(isinstance(error, RequestError) for error in failed)
    return _WRONG_USAGE if is_refused and len(failed) == params.n else _FAILED


def _show(
    completion: Completion, prompts: int, params: SamplingParams, *, as_json: bool
) -> list[DeepInferError]:
    """Print one result; the error if it has one."""
    if as_json:
        print(json.dumps(completion.to_json(), ensure_ascii=False), flush=True)
    elif completion.error is None or completion.text:
        print(completion.text, flush=True)
    which = f"prompt {completion.index + 1}: " if prompts > 1 else ""
    which += f"sample {completion.sample + 1}: " if params.n > 1 else ""
    if completion.error is None:
        _tell_cut(completion, params, which)
        return []
    complain(f"{which}{completion.error.message}", completion.error.hint)
    return [completion.error]
