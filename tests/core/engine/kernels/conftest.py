"""A compiler that costs nothing and does what a kernel's spec says."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deepinfer_core.interfaces.operators.wanted import WantedKernel

MODULE = """
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from deepinfer_core.interfaces.operators.wanted import KernelCompiler


def build(spec, tuning):
    raise AssertionError("only a compiler builds")


@dataclass(frozen=True)
class Compiler(KernelCompiler):
    folder: Path

    def _file(self, spec):
        return self.folder / spec

    def keeps(self, build, spec, tuning):
        return self._file(spec).exists()

    def keep(self, build, spec, tuning):
        print("a compiler talks on standard output")
        if spec.startswith("wrong"):
            raise RuntimeError("much\\n" * 1000 + "\\nerror: this is no kernel")
        if spec.startswith("abort"):
            print("cannot go on", file=sys.stderr, flush=True)
            os.abort()
        if spec.startswith("alone"):
            self._file(spec + " began").touch()
        if spec.startswith("together"):
            self._file(spec + " began").touch()
            end = time.monotonic() + 20
            while len(list(self.folder.glob("together*began"))) < 2:
                assert time.monotonic() < end, "nobody compiles beside me"
                time.sleep(0.01)
        if spec.startswith("forever"):
            self._file(spec + " began").touch()
            time.sleep(1000)
        self._file(spec).write_text(str(os.getpid()))
"""


@pytest.fixture
def kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], WantedKernel]]:
    """Makes a kernel; its spec begins with what happens when it is compiled."""
    site, kept = tmp_path / "site", tmp_path / "kept"
    site.mkdir()
    kept.mkdir()
    (site / "acme_kernel.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(site))
    module = importlib.import_module("acme_kernel")
    compiler = module.Compiler(kept)

    def make(spec: str) -> WantedKernel:
        return WantedKernel(compiler=compiler, build=module.build, spec=spec, tuning=None)

    yield make
    del sys.modules["acme_kernel"]
