"""The examples of the guide run as they are printed."""

import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "tile-interpreter.md"


def test_the_examples_of_the_guide_run_one_after_the_other(tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 2
    path = tmp_path / "example.py"
    path.write_text("\n".join(examples), encoding="utf-8")
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "noticed: " in done.stdout


def test_the_core_and_the_interpreter_load_without_the_tile_language() -> None:
    code = (
        "import sys; import deepinfer_core.testing.tiles, deepinfer_core.testing.tiles.subjects;"
        "import deepinfer_core.testing.tiles.cubin;"
        "sys.exit(any(name in sys.modules for name in ('tilelang', 'tvm', 'ml_dtypes')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
