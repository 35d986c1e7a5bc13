"""What does a server load?"""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    ["app", "connection", "protocols", "completions.protocol", "engine_process"],
)
def test_a_server_loads_no_torch(module: str) -> None:
    code = f"import sys, deepinfer_core.server.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
