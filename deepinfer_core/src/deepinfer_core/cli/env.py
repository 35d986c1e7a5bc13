"""What must a bug report say about this installation?"""

from __future__ import annotations

import argparse
import platform
import sys
from typing import Any

from deepinfer_core.cli.output import print_json, print_table

__all__ = ["add_arguments", "run"]

_LIBRARIES = (
    "importlib-metadata",
    "numpy",
    "pluggy",
    "pydantic",
    "safetensors",
    "structlog",
    "tilelang",
    "tokenizers",
    "torch",
    "triton",
    "xgrammar",
)
"""Libraries whose version changes what the engine does; shown if installed."""

_GIB = 1 << 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="the same as data")


def run(args: argparse.Namespace) -> int:
    """Print versions, platform, resources and the ``DEEPINFER_*`` variables that are set."""
    data = _facts()
    if args.json:
        print_json(data)
        return 0
    machine = data["machine"]
    print_table(
        [
            ("python", f"{data['python']['version']}  {data['python']['executable']}"),
            ("platform", data["platform"]),
            ("processor", machine["model"]),
            ("cores", f"{machine['cores']} cores, {machine['threads']} threads"),
            ("memory", f"{machine['memory_bytes'] / _GIB:.1f} GiB"),
            ("instructions", " ".join(machine["instruction_sets"]) or "-"),
        ]
    )
    print()
    rows = [(d["name"], d["version"], d["source"]) for d in data["distributions"]]
    print_table([("distribution", "version", "source"), *rows])
    print()
    rows = [(item["name"], item["value"], item["note"]) for item in data["environment"]]
    print_table(
        [("variable", "value", ""), *rows] if rows else [("no DEEPINFER_* variable is set",)]
    )
    return 0


def _facts() -> dict[str, Any]:
    from deepinfer_core.plugin.cpu_facts import cpu_facts

    return {
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "executable": sys.executable,
        },
        "platform": platform.platform(),
        "machine": cpu_facts(),
        "distributions": _distributions(),
        "environment": _environment(),
    }


def _distributions() -> list[dict[str, str]]:
    """Ours, those with a plugin or a checkpoint, and the libraries that matter."""
    import importlib_metadata

    from deepinfer_core.config.checkpoints import shipped_checkpoints
    from deepinfer_core.plugin.discovery import installed_plugins, installed_versions

    versions = installed_versions()
    ours = {name for name in versions if name == "deepinfer" or name.startswith("deepinfer-")}
    ours |= {plugin.distribution for plugin in installed_plugins()}
    ours |= {item.dist.name.lower() for item in shipped_checkpoints() if item.dist is not None}
    names = [*sorted(ours), *(name for name in _LIBRARIES if name in versions)]
    found = []
    for name in names:
        try:
            source = _source(importlib_metadata.distribution(name))
        except importlib_metadata.PackageNotFoundError:
            source = "damaged metadata"
        found.append({"name": name, "version": versions.get(name, "unknown"), "source": source})
    return found


def _source(distribution: Any) -> str:
    """Where an installation came from; an editable one runs whatever its folder holds."""
    origin = distribution.origin
    if origin is None:
        return "index"
    info = getattr(origin, "dir_info", None)
    editable = info is not None and getattr(info, "editable", False)
    return f"editable {origin.url}" if editable else str(origin.url)


def _environment() -> list[dict[str, str]]:
    from deepinfer_core.config.environment import read_environment, variables
    from deepinfer_core.errors import ConfigError

    found = []
    for name, value in variables().items():
        try:
            read_environment({name: value})
            note = ""
        except ConfigError as error:
            note = error.message
        found.append({"name": name, "value": value, "note": note})
    return found
