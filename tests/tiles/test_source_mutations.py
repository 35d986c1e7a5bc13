"""Mistakes in a kernel's file reach every spec, and leave what is not traced alone."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from deepinfer_core.testing.tiles import Program
from deepinfer_core.testing.tiles.source_mutations import (
    SOURCE_KINDS,
    SourceMutant,
    load_mutant,
    source_mutants,
)
from deepinfer_core.testing.tiles.subjects import FileSubject
from deepinfer_core.testing.tiles.survey import caught_share, survey

KERNEL = """
import tilelang.language as T

FACTOR = 0.5


def scaled(value):
    return T.max(value * FACTOR, 0.25) - 1.0


def default_tuning(spec):
    return T.float32(3.0) * 2.0


def build(spec, tuning):
    width, tile = spec * 2, 2
    rows = T.dynamic("rows")

    @T.prim_func
    def kernel(x: T.Tensor((rows, width), "float32"), out: T.Tensor((rows, width), "float32")):
        with T.Kernel(T.ceildiv(rows, tile), threads=tuning * 1) as block:
            held = T.alloc_fragment((tile, width), "float32")
            T.copy(x[block * tile, 0], held)
            for i, j in T.Parallel(tile, width):
                row = (block * tile * width + i * width + j) // width
                if row < rows and j < width:
                    out[row, j] = T.cast(T.cast(scaled(held[i, j]), "bfloat16"), "float32")

    return kernel
"""


@pytest.fixture
def original(tmp_path: Path) -> ModuleType:
    path = tmp_path / "kernel_of_a_test.py"
    path.write_text(KERNEL)
    spec = importlib.util.spec_from_file_location("kernel_of_a_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    del sys.modules[spec.name]
    return module


def all_mutants(module: ModuleType) -> list[SourceMutant]:
    assert module.__file__ is not None
    return list(source_mutants(Path(module.__file__), 1))


def test_only_traced_code_is_changed(original: ModuleType) -> None:
    changed = all_mutants(original)
    lines = KERNEL.splitlines()
    kernel_starts = lines.index("    @T.prim_func")
    scaled_line = next(n for n, line in enumerate(lines, 1) if "T.max(value" in line)
    assert {m.line for m in changed if m.line <= kernel_starts} == {scaled_line}
    assert not [m for m in changed if "alloc_fragment" in m.before or "ceildiv" in m.before]
    assert len({(m.kind, m.text) for m in changed}) == len(changed)


def test_each_kind_that_can_be_made_is_made(original: ModuleType) -> None:
    kinds = {mutant.kind for mutant in all_mutants(original)}
    # No flag and no tile operation with one; constants and terms are in the plain function.
    assert set(SOURCE_KINDS) - kinds == {"wrong flag"}


def test_a_mutant_is_a_file_that_can_be_built(original: ModuleType, tmp_path: Path) -> None:
    mutant = next(m for m in all_mutants(original) if m.kind == "missing clamp")
    module = load_mutant(mutant, "a_package", tmp_path)
    x, out = torch.full((2, 4), -9.0), torch.zeros(2, 4)
    Program(module.build(2, 32)).run({"x": x, "out": out})
    assert (out == -5.5).all()


def file_subject(
    original: ModuleType, folder: Path, normal: Callable[..., torch.Tensor], rows: list[int]
) -> FileSubject:
    def check_for(spec: int, count: int) -> Callable[[Program], list[str]]:
        x = normal(count, spec * 2)
        expected = ((x * 0.5).clamp_min(0.25) - 1).bfloat16().float()

        def check(program: Program) -> list[str]:
            out = torch.full_like(x, torch.nan)
            program.run({"x": x, "out": out}, limit_s=2)
            return [] if torch.equal(out, expected) else ["out"]

        return check

    def make(module: Any, spec: int) -> Any:
        return module.build(spec, 32)

    assert original.__file__ is not None
    return FileSubject(
        name="kernel",
        path=Path(original.__file__),
        package="a_package",
        make=make,
        original=original,
        checks=[(spec, check_for(spec, count)) for spec in (2, 5) for count in rows],
        folder=folder,
    )


def test_good_cases_notice_all_mistakes_but_the_equivalent_ones(
    original: ModuleType, tmp_path: Path, normal: Callable[..., torch.Tensor]
) -> None:
    outcomes = survey([file_subject(original, tmp_path, normal, [5])], seed=1, count=500)
    assert [str(one) for one in outcomes if one.verdict == "survived"] == []
    assert caught_share(outcomes) == 1.0
    # `j < width` is provably true: without it the program is the same.
    assert [one for one in outcomes if one.verdict == "equivalent"] != []


def test_cases_of_one_tile_let_wrong_strides_survive(
    original: ModuleType, tmp_path: Path, normal: Callable[..., torch.Tensor]
) -> None:
    outcomes = survey([file_subject(original, tmp_path, normal, [2])], seed=1, count=500)
    assert "wrong stride" in {one.kind for one in outcomes if one.verdict == "survived"}


def test_what_the_frontend_refuses_does_not_count(
    original: ModuleType, tmp_path: Path, normal: Callable[..., torch.Tensor]
) -> None:
    subject = file_subject(original, tmp_path, normal, [3])
    broken = SourceMutant(kind="any", line=1, before="", after="", text="build = undefined\n")
    assert subject.notice(broken)[0] == "stillborn"
    useless = SourceMutant(
        kind="any",
        line=1,
        before="",
        after="",
        text="def build(spec, tuning):\n    raise OSError\n",
    )
    assert subject.notice(useless)[0] == "stillborn"
