"""The names of the package that users import."""

import subprocess
import sys

import deepinfer_core


def test_every_public_name_is_listed_and_can_be_imported() -> None:
    assert set(deepinfer_core.__all__) <= set(dir(deepinfer_core))
    assert all(hasattr(deepinfer_core, name) for name in deepinfer_core.__all__)


def test_listing_the_names_loads_no_torch() -> None:
    code = "import sys, deepinfer_core; dir(deepinfer_core); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
