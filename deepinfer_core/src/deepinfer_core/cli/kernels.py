"""How are the kernels of an engine compiled before there is an engine, or a device to run it on?

``compile`` rehearses the engine of some settings and checkpoint, and fills ``kernels.cache_dir``
with every kernel that its warm-up will call. With ``--arch`` neither device nor driver is needed;
of the checkpoint only ``config.json`` is, if its weights are stored as that declares.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Any

from deepinfer_core.cli.output import complain, print_json, print_table
from deepinfer_core.cli.parser import UsageError, add_settings_arguments, settings_from

if TYPE_CHECKING:
    from deepinfer_core.engine.kernels.preparing import Prepared
    from deepinfer_core.interfaces.operators.wanted import WantedKernel
    from deepinfer_core.plugin import DeviceTarget, Resolved

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the action and its options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    compiling = actions.add_parser("compile", help="fill kernels.cache_dir")
    add = compiling.add_argument
    add("--arch", metavar="NAME", help="for a device that is not here, e.g. sm_90a")
    add(
        "--cores",
        type=int,
        metavar="N",
        default=0,
        help="its multiprocessors; default: those usual for --arch (132 for sm_90a)",
    )
    add("--jobs", type=int, metavar="N", help="processes at once; default kernels.compile_jobs")
    add("--json", action="store_true", help="one object")
    add_settings_arguments(compiling)
    compiling.set_defaults(act=_compile)


def run(args: argparse.Namespace) -> int:
    """Run the chosen action."""
    status: int = args.act(args)
    return status


def _compile(args: argparse.Namespace) -> int:
    """Compile what is missing; 0 if the folder then has everything, 1 if a kernel failed."""
    from deepinfer_core.config import checkpoint_folder, resolve_components
    from deepinfer_core.engine.model_folder import model_needs, read_config

    loaded = settings_from(args)
    settings, jobs = loaded.settings, _jobs(args, loaded.settings.kernels.compile_jobs)
    target = _target(args)
    folder = checkpoint_folder(settings.model.path)
    config = read_config(folder, settings)
    resolved = resolve_components(loaded, model_needs(config, settings), target).require()
    _check(resolved)

    from deepinfer_core.cli.generation import progress_of
    from deepinfer_core.engine.kernels.absent_weights import stored_formats
    from deepinfer_core.engine.kernels.preparing import compile_missing
    from deepinfer_core.engine.kernels.rehearsal import wanted_kernels

    wanted = wanted_kernels(config, settings, resolved, stored_formats(folder))
    progress = progress_of(loaded, has_lines=True)
    done = compile_missing(wanted, resolved.context.cache_dir, jobs, progress)
    if args.json:
        print_json(_data(done, resolved))
    else:
        _print(done, resolved)
    for one in done.failed:
        complain(f"{one.kernel.operator}: {one.problem}", "")
    return 1 if done.failed else 0


def _jobs(args: argparse.Namespace, configured: int | None) -> int | None:
    if args.jobs is not None and args.jobs < 1:
        raise UsageError(f"--jobs is {args.jobs}", hint="a number from 1")
    return configured if args.jobs is None else args.jobs


def _target(args: argparse.Namespace) -> DeviceTarget | None:
    from deepinfer_core.plugin import DeviceTarget

    if args.arch is None:
        if args.cores:
            raise UsageError("--cores without --arch", hint="name the architecture too")
        return None
    if args.cores < 0:
        raise UsageError(f"--cores is {args.cores}", hint="a number from 1, or leave it out")
    return DeviceTarget(arch=args.arch, cores=args.cores)


def _check(resolved: Resolved) -> None:
    if not any(pick.spec.kernels for pick in resolved.picks):
        raise UsageError(
            f"no component for the device {resolved.context.device} has kernels to compile",
            hint="name a device that has, e.g. --set device=nvidia",
        )
    if not resolved.context.cache_dir:
        raise UsageError("no folder to keep kernels in", hint="name one: --set kernels.cache_dir=")


def _data(done: Prepared, resolved: Resolved) -> dict[str, Any]:
    return {
        "cache_dir": resolved.context.cache_dir,
        "device": resolved.context.facts.model,
        "jobs": done.jobs,
        "elapsed_s": round(done.elapsed_s, 3),
        "found": [_described(kernel) for kernel in done.found],
        "compiled": [
            _described(one.kernel) | {"elapsed_s": round(one.elapsed_s, 3)} for one in done.compiled
        ],
        "failed": [_described(one.kernel) | {"problem": one.problem} for one in done.failed],
    }


def _described(kernel: WantedKernel) -> dict[str, str]:
    return {
        "operator": kernel.operator,
        "spec": repr(kernel.spec),
        "tuning": repr(kernel.tuning),
    }


def _print(done: Prepared, resolved: Resolved) -> None:
    """A line an operator, then the sums."""
    columns = {
        "compiled": Counter(one.kernel.operator for one in done.compiled),
        "found": Counter(kernel.operator for kernel in done.found),
        "failed": Counter(one.kernel.operator for one in done.failed),
    }
    operators = sorted(set().union(*columns.values()))
    rows = [("kernel", *columns)]
    rows += [(name, *(_number(one[name]) for one in columns.values())) for name in operators]
    rows.append(("total", *(str(one.total()) for one in columns.values())))
    print_table(rows)
    print(f"\nfor     {resolved.context.facts.model}")
    print(f"folder  {resolved.context.cache_dir}")
    print(f"time    {done.elapsed_s:.1f} s, {done.jobs} at once")


def _number(count: int) -> str:
    return str(count) if count else ""
