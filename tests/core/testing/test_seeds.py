"""Does a test have data of its own, and other data only where the user asks for it?"""

import subprocess
import sys
from pathlib import Path

import pytest

SUITE = """
import pytest
from deepinfer_core.testing.seeds import seed_of

@pytest.mark.parametrize("place", [0, 1])
def test_it(place, request):
    print("seed", place, seed_of(request))
"""


def seeds(folder: Path, *options: str) -> list[str]:
    (folder / "test_suite.py").write_text(SUITE, encoding="utf-8")
    command = (
        sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-c", "/dev/null",
        "--rootdir", str(folder), *options, str(folder),
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    lines = [line.lstrip(".") for line in done.stdout.splitlines()]
    return [line for line in lines if line.startswith("seed")] or [done.stdout + done.stderr]


def test_every_test_has_a_seed_and_the_option_gives_all_of_them_another(tmp_path: Path) -> None:
    """Without the plugin there is no option, and the seeds are those of number 0."""
    plugin = ("-p", "deepinfer_core.testing.seeds", "--data-seed")
    usual = seeds(tmp_path)
    # Checksums of "test_it[0]" and "test_it[1]".
    assert usual == ["seed 0 402041098", "seed 1 250452043"]
    others = seeds(tmp_path, *plugin, "1")
    assert len({*usual, *others}) == 4


@pytest.mark.parametrize("text", ["-1", "4294967296", "a"])
def test_what_is_no_seed_is_refused_in_words(tmp_path: Path, text: str) -> None:
    plugin = ("-p", "deepinfer_core.testing.seeds", f"--data-seed={text}")
    assert f"'{text}' is no number from 0 to 4294967295" in seeds(tmp_path, *plugin)[0]
