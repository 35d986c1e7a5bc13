"""Are the kernels of the sweeps compiled before a machine with a device runs them?

``python -m deepinfer_core.testing.sweep_kernels --set device=nvidia`` rehearses every engine of the
sweeps and fills ``kernels.cache_dir``; with ``--arch sm_90a`` on a machine that has a compiler and
no device. The tests do the same by themselves, where it was not done before.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from deepinfer_core.config import load_settings, resolve_components
from deepinfer_core.plugin import DeviceTarget, ModelNeeds
from deepinfer_core.testing.rehearsed_engines import compile_once, engine_kernels
from deepinfer_core.testing.sweeps.engines import swept_engines

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile, and say how many there are and how long it took.

    Returns:
        Exit code: 0 if all are there now, 1 if one could not be compiled.
    """
    parser = argparse.ArgumentParser(description="Compile what the sweeps of a device call.")
    add = parser.add_argument
    add("--arch", metavar="NAME", help="for a device that is not here, e.g. sm_90a")
    add("--set", metavar="KEY=VALUE", action="append", default=[], help="as of deepinfer's verbs")
    chosen = parser.parse_args(arguments)
    target = DeviceTarget(arch=chosen.arch) if chosen.arch else None
    loaded = load_settings(overrides=chosen.set, environ={})
    resolved = resolve_components(loaded, ModelNeeds(), target).require()
    numerics = loaded.settings.model.numerics.numerics()
    wanted = engine_kernels(swept_engines(), resolved, numerics)
    done = compile_once(wanted, resolved.context.cache_dir)
    for one in done.failed:
        sys.stdout.write(f"{one.kernel.operator} {one.kernel.spec}: {one.problem}\n")
    sys.stdout.write(
        f"{len(wanted)} kernels, {len(done.found)} were there, {len(done.compiled)} compiled in"
        f" {done.elapsed_s:.1f} s, {done.jobs} at once, {len(done.failed)} failed\n"
    )
    return 1 if done.failed else 0


if __name__ == "__main__":
    sys.exit(main())
