"""Do all backends have the same operators, with the same parameters, in files of the same names?

Kernel files are read, not imported: no backend need be installed, and none can hide behind another.
"""

import ast
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = {
    name: folder
    for name in ("nvidia", "ascend")
    if (folder := ROOT / f"deepinfer_{name}/src/deepinfer_{name}/kernels").is_dir()
}
FAMILIES = ("all_to_all_", "attention_", "gemm_", "transform_", "sampler_")


def surface(folder: Path) -> dict[str, str]:
    """Public functions of operator files, and the kernel's own arguments: name to parameters.

    A kernel has the name of its operator, in whichever file its arguments are written.
    """
    found = {}
    trees = {
        path.stem: ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.py"))
    }
    functions = [
        node
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    ]
    for operator, tree in trees.items():
        if not operator.startswith(FAMILIES):
            continue
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                found[f"{operator}.{node.name}"] = _names(node)
        kernels = [node for node in functions if node.name == operator]
        for number, node in enumerate(kernels):
            found[f"{operator}.{operator}[{number}]"] = _names(node)
    return found


def differences(left: dict[str, str], right: dict[str, str]) -> list[str]:
    """What one surface has and the other has not, or has otherwise."""
    return [
        f"{name}: {left.get(name, 'missing')} | {right.get(name, 'missing')}"
        for name in sorted(left.keys() | right.keys())
        if left.get(name) != right.get(name)
    ]


def _names(node: ast.FunctionDef) -> str:
    return ", ".join(argument.arg for argument in node.args.args)


def kernels(folder: Path, **files: str) -> dict[str, str]:
    """The surface of files with these texts."""
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")
    return surface(folder)


@pytest.mark.parametrize("backend", sorted(FOLDERS))
def test_every_operator_is_built_from_a_spec_and_a_tuning(backend: str) -> None:
    found = surface(FOLDERS[backend])
    operators = {name.partition(".")[0] for name in found}
    assert operators, "no operator was found"
    for operator in operators:
        assert found.get(f"{operator}.build") == "spec, tuning"
        assert f"{operator}.{operator}[0]" in found, "the kernel is called as its file"


def test_the_backends_mirror_each_other() -> None:
    """With one backend there is nothing to compare."""
    first, *others = FOLDERS.values()
    for other in others:
        assert differences(surface(first), surface(other)) == []


KERNEL = """
def build(spec, tuning):
    def gemm_dense(x_TK, out_TN):
        pass
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (KERNEL, []),
        (KERNEL.replace("x_TK", "x"), ["gemm_dense.gemm_dense[0]: x_TK, out_TN | x, out_TN"]),
        (
            KERNEL.replace("spec, tuning", "spec"),
            ["gemm_dense.build: spec, tuning | spec"],
        ),
        (KERNEL + "\ndef more():\n    pass\n", ["gemm_dense.more: missing | "]),
    ],
)
def test_a_difference_is_seen(tmp_path: Path, text: str, found: list[str]) -> None:
    left = kernels(tmp_path / "left", gemm_dense=KERNEL, launch="def open(): pass")
    assert differences(left, kernels(tmp_path / "right", gemm_dense=text)) == found


def test_a_missing_operator_is_seen(tmp_path: Path) -> None:
    left = kernels(tmp_path / "left", gemm_dense=KERNEL)
    assert len(differences(left, kernels(tmp_path / "right"))) == 2


def test_arguments_may_be_written_in_a_part_of_several_kernels(tmp_path: Path) -> None:
    parts = "def arguments():\n    def gemm_dense(x_TK, out_TN):\n        pass\n"
    build = "def build(spec, tuning):\n    pass\n"
    left = kernels(tmp_path / "left", gemm_dense=KERNEL)
    assert differences(left, kernels(tmp_path / "right", gemm_dense=build, parts=parts)) == []
