"""How fast is the engine here, next to what this machine could do at best?

``throughput`` asks for everything at once and counts what is finished a second; ``latency`` runs
one batch after the other and notes when each token comes; ``cache``, ``kernels``, ``layers`` and
``serve`` have files of their own. The first two are offline, greedy, and draw past the end of the
sequence, so that every run draws the tokens it was asked for. Figures go to standard output, as a
table or with ``--json`` as data; progress and problems go to standard error.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from deepinfer_core.cli.bench_cache import add_cache_action
from deepinfer_core.cli.bench_kernels import add_kernels_action
from deepinfer_core.cli.bench_layers import add_layers_action
from deepinfer_core.cli.bench_serve import add_serve_action
from deepinfer_core.cli.generation import (
    add_model_arguments,
    model_settings,
    open_llm,
    progress_of,
)
from deepinfer_core.cli.output import check_writable, print_json, print_table
from deepinfer_core.cli.parser import UsageError
from deepinfer_core.cli.prompt_input import Prompt, read_prompt_file

if TYPE_CHECKING:
    from deepinfer_core.bench.offline import Experiment, Result

__all__ = ["add_arguments", "run"]

_LENGTH = "128"
_PROMPTS = 16
_MOST_SEED = (1 << 64) - 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    throughput = actions.add_parser("throughput", help="requests and tokens a second")
    throughput.add_argument(
        "--num-prompts",
        type=int,
        metavar="N",
        help=f"requests of a run; default {_PROMPTS}, or all of the file",
    )
    _add_common(throughput, batch_size="the engine's", repeats=3)
    latency = actions.add_parser("latency", help="time of a batch, of first and of next tokens")
    _add_common(latency, batch_size="1", repeats=5)
    latency.set_defaults(num_prompts=None)
    add_cache_action(actions)
    add_kernels_action(actions)
    add_layers_action(actions)
    add_serve_action(actions)


def _add_common(parser: argparse.ArgumentParser, *, batch_size: str, repeats: int) -> None:
    add = parser.add_argument
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--input-len",
        default=_LENGTH,
        metavar="TOKENS",
        help=f"of random prompts: 128, 64..256 or 32,64..256; default {_LENGTH}",
    )
    source.add_argument(
        "--prompt-file",
        type=Path,
        metavar="FILE",
        help="prompts as for generate; each run sends them again, so a prefix cache will have them",
    )
    add("--output-len", default=_LENGTH, metavar="TOKENS", help=f"likewise; default {_LENGTH}")
    add(
        "--batch-size",
        type=int,
        metavar="N",
        help=f"requests that run at once, engine.max_num_seqs; default {batch_size}",
    )
    add("--warmup", type=int, default=1, metavar="N", help="runs that do not count; default 1")
    add("--repeat", type=int, default=repeats, metavar="N", help=f"runs; default {repeats}")
    add("--seed", type=int, default=0, metavar="N", help="of lengths and tokens; default 0")
    add("--json", action="store_true", help="one object a figure")
    add("--out", type=Path, metavar="FILE", help="write these objects to a file as well")
    add_model_arguments(parser)
    parser.set_defaults(act=_run_load)


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    outcome: int = args.act(args)
    return outcome


def _run_load(args: argparse.Namespace) -> int:
    from deepinfer_core.bench.offline import measure

    _check_numbers(args)
    if args.out is not None:
        check_writable(args.out)
    prompts = (
        None if args.prompt_file is None else _chosen(read_prompt_file(args.prompt_file), args)
    )
    if args.batch_size is None and args.action == "latency":
        args.batch_size = 1
    if args.batch_size is not None:
        args.overrides = [*args.overrides, f"engine.max_num_seqs={args.batch_size}"]
    experiment = _experiment(args, prompts)
    loaded = model_settings(args)
    result = measure(experiment, loaded, progress_of(loaded), open_llm)
    if args.out is not None:
        args.out.write_text(json.dumps(result.to_json(), indent=1) + "\n", encoding="utf-8")
    if args.json:
        print_json(result.to_json())
    else:
        _print(result)
    return 0


def _check_numbers(args: argparse.Namespace) -> None:
    least = {"num_prompts": 1, "batch_size": 1, "warmup": 0, "repeat": 1, "seed": 0}
    for name, lowest in least.items():
        value = getattr(args, name)
        if value is not None and value < lowest:
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{option} {value}", hint=f"give {lowest} or more")
    if args.seed > _MOST_SEED:
        raise UsageError(f"--seed {args.seed}", hint=f"give at most {_MOST_SEED}")


def _chosen(prompts: list[Prompt], args: argparse.Namespace) -> list[Prompt]:
    """As many prompts of the file as a run sends."""
    wanted = (args.batch_size or 1) if args.action == "latency" else args.num_prompts
    if wanted is not None and wanted > len(prompts):
        option = "--batch-size" if args.action == "latency" else "--num-prompts"
        raise UsageError(
            f"{option} is {wanted}, {args.prompt_file} holds {len(prompts)}",
            hint=f"give at most {len(prompts)}",
        )
    return prompts[:wanted]


def _experiment(args: argparse.Namespace, prompts: list[Prompt] | None) -> Experiment:
    from deepinfer_core.bench.lengths import parse_lengths
    from deepinfer_core.bench.offline import Experiment

    is_latency = args.action == "latency"
    return Experiment(
        kind=args.action,
        prompts=prompts,
        source_name="" if prompts is None else args.prompt_file.name,
        count=args.batch_size if is_latency else args.num_prompts or _PROMPTS,
        inputs=parse_lengths(args.input_len, "--input-len"),
        outputs=parse_lengths(args.output_len, "--output-len"),
        warmup=args.warmup,
        repeats=args.repeat,
        seed=args.seed,
    )


def _print(result: Result) -> None:
    print(f"load      {result.load_name}")
    print(f"computed  by {result.components}")
    print(f"hardware  {result.stamp.hardware}")
    print(f"program   {result.stamp.commit}, {result.stamp.date}")
    times = " ".join(f"{run.elapsed_s:.3f}" for run in result.runs)
    print(f"runs      {times} s")
    cached, all_tokens = (
        sum(run.cached_tokens for run in result.runs),
        sum(run.prompt_tokens for run in result.runs),
    )
    print(f"cached    {cached} of {all_tokens} prompt tokens\n")
    rows = [("figure", "value", "unit", "bound", "ratio", "what bounds it")]
    for figure in result.figures:
        reference = figure.reference
        numbers = (f"{figure.value:.4g}", figure.unit, f"{reference.value:.4g}")
        name = figure.name.partition("[")[0]
        rows.append((name, *numbers, f"{figure.ratio:.3g}", reference.name))
    print_table(rows)
