"""What does each verb import? Told by content; a clock would tell about the machine."""

import os
import subprocess
import sys

import pytest

HEAVY = {"torch", "numpy", "httpx", "transformers", "tilelang", "triton", "xgrammar"}
LATER = HEAVY | {"structlog", "rich", "tokenizers", "safetensors", "prometheus_client"}

SCRIPT = """
import contextlib, io, sys
from deepinfer_core.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    status = main({arguments!r})
print(status, *sys.modules)
"""


def imported(*arguments: str) -> set[str]:
    clean = {name: text for name, text in os.environ.items() if "DEEPINFER_" not in name}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(arguments=list(arguments))],
        capture_output=True, text=True, check=True, env=clean,
    )  # fmt: skip
    status, *modules = done.stdout.split()
    assert status == "0", done.stderr
    assert "deepinfer_core.cli" in modules
    return {name.partition(".")[0] for name in modules}


@pytest.mark.parametrize(
    "arguments",
    [
        ("plugins",),
        ("plugins", "--json"),
        ("plugins", "--why", "core.reference"),
        ("check",),
        ("config",),
        ("config", "validate"),
        ("config", "schema"),
        ("env",),
    ],
)
def test_a_verb_that_explains_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert not HEAVY & imported(*arguments)


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("plugins",)])
def test_the_lightest_verbs_import_no_logs_and_no_bars(arguments: tuple[str, ...]) -> None:
    assert not LATER & imported(*arguments)


def test_the_version_imports_no_plugin_system_either() -> None:
    assert not {"pluggy", "pydantic", "importlib_metadata", "yaml"} & imported("--version")


@pytest.mark.parametrize(
    "module",
    ["deepinfer_core", "deepinfer_core.cli", "deepinfer_core.plugin", "deepinfer_core.config",
     "deepinfer_core.builtin", "deepinfer_core.interfaces.kinds", "deepinfer_core.telemetry"],
)  # fmt: skip
def test_a_light_room_imports_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert not LATER & {name.partition(".")[0] for name in done.stdout.split()}


def test_the_plugin_room_imports_no_pydantic() -> None:
    code = "import sys, deepinfer_core.plugin.resolution; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
