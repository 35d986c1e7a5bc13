"""What is the configured device, as its vendor's facts program sees it?

The program runs in a child process, so that a driver's crash, hang or open context stays there.
"""

from __future__ import annotations

import json
import subprocess
import sys

from deepinfer_core.plugin.context import DeviceFacts, DeviceTarget
from deepinfer_core.plugin.resolved import describe

__all__ = ["read_facts"]


def read_facts(
    device: str, module: str, timeout_s: float, target: DeviceTarget | None = None
) -> DeviceFacts:
    """Run a facts program.

    Args:
        device: configured name of the device.
        module: run with ``python -m``; empty: nothing is known about the device.
        timeout_s: for the program.
        target: a device to describe instead of this machine's; the program is told by
            ``--arch NAME`` and ``--cores NUMBER``, and says ``is_absent``.

    Returns:
        The facts; a failure is in their ``problem``.
    """
    if not module:
        problem = f"no program describes {target.arch}" if target is not None else ""
        return DeviceFacts(device=device, problem=problem)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", module, *_arguments(target)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return DeviceFacts(device=device, problem=f"{module} gave no facts within {timeout_s:g} s")
    if done.returncode != 0:
        last = done.stderr.strip().rpartition("\n")[2]
        problem = f"{module} ended with {done.returncode}" + (f": {last}" if last else "")
        return DeviceFacts(device=device, problem=problem)
    try:
        data = json.loads(done.stdout)
        facts = DeviceFacts.from_json({**data, "device": device})
    except (TypeError, ValueError) as error:
        return DeviceFacts(device=device, problem=f"{module} gave no facts: {describe(error)}")
    if target is not None and not facts.problem and not facts.extra.get("is_absent"):
        problem = f"the device {device} can only be described where it is, not as {target.arch}"
        return DeviceFacts(device=device, problem=problem)
    return facts


def _arguments(target: DeviceTarget | None) -> list[str]:
    if target is None:
        return []
    return ["--arch", target.arch, "--cores", str(target.cores)]
