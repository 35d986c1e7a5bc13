"""Are kernels compiled once, kept whole, and is whatever is missing named with what to do?"""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from deepinfer_core.errors import DeviceError
from deepinfer_core.native import compiling
from deepinfer_core.native.compiling import find_compiler, library_name, sources
from deepinfer_core.native.library import bind, open_library

pytestmark = pytest.mark.usefixtures("kernels")


def libraries(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_sources_become_functions(tmp_path: Path) -> None:
    answer = bind(open_library(str(tmp_path / "cache")), "answer", "l")
    assert answer(0) == 0


@pytest.mark.parametrize(
    ("code", "meaning"), [(1, "no memory"), (2, "an index beyond"), (3, "the unknown code 3")]
)
def test_a_code_other_than_success_raises(tmp_path: Path, code: int, meaning: str) -> None:
    answer = bind(open_library(str(tmp_path / "cache")), "answer", "l")
    with pytest.raises(DeviceError, match=f"asked answer to run, found {meaning}"):
        answer(code)


def test_the_second_opening_compiles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_library(str(tmp_path / "cache"))

    def refuse(*arguments: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr("deepinfer_core.native.library.compile_library", refuse)
    open_library(str(tmp_path / "cache"))


def test_a_changed_source_gets_a_library_of_its_own(tmp_path: Path, kernels: Path) -> None:
    open_library(str(tmp_path / "cache"))
    kernels.write_text(kernels.read_text().replace("(int)code", "(int)code + 2"))
    answer = bind(open_library(str(tmp_path / "cache")), "answer", "l")
    with pytest.raises(DeviceError, match="an index beyond"):
        answer(0)
    assert len(libraries(tmp_path / "cache")) == 2


@pytest.mark.parametrize("part", ["flags", "version", "path", "processor", "header"])
def test_the_name_tells_apart_whatever_changes_the_code(
    part: str, kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = find_compiler()
    before = library_name(compiler, sources())
    if part == "flags":
        monkeypatch.setattr(compiling, "FLAGS", (*compiling.FLAGS, "-O1"))
    elif part == "processor":
        monkeypatch.setattr(compiling, "_processor", lambda: ("another",))
    elif part == "header":
        (kernels.parent / "answer.h").write_text("/* nothing */")
    else:
        changed = {"path": compiler.path, "version": compiler.version, part: "other"}
        compiler = compiling.Compiler(**changed)
    assert library_name(compiler, sources()) != before


def test_several_may_compile_at_once(tmp_path: Path) -> None:
    failures: list[DeviceError] = []

    def open_it() -> None:
        try:
            open_library(str(tmp_path / "cache"))
        except DeviceError as error:
            failures.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(libraries(tmp_path / "cache")) == 1


def test_a_failed_compilation_leaves_nothing_behind(tmp_path: Path, kernels: Path) -> None:
    kernels.write_text("int broken(")
    with pytest.raises(DeviceError, match=r"compile answer\.c, found: .*error"):
        open_library(str(tmp_path / "cache"))
    assert libraries(tmp_path / "cache") == []


def test_a_failed_link_is_told_with_its_first_line(tmp_path: Path, kernels: Path) -> None:
    kernels.write_text("int missing(void); int present(void) { return missing(); }")
    # A shared library may leave names open; a second definition of one may not.
    (kernels.parent / "other.c").write_text("int present(void) { return 1; }")
    with pytest.raises(DeviceError, match=r"compile the library, found: .*present"):
        open_library(str(tmp_path / "cache"))


def test_no_compiler_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeviceError, match="found none of cc, gcc, clang") as caught:
        open_library(str(tmp_path / "cache"))
    assert "install a C compiler" in caught.value.hint


def test_a_compiler_that_fails_is_told(tmp_path: Path, compiler: Callable[[str], Path]) -> None:
    file = compiler("exit 3")
    with pytest.raises(DeviceError, match=f"{file} for its version, found that it ends with 3"):
        open_library(str(tmp_path / "cache"))


def test_a_compiler_that_cannot_be_run_is_told(
    tmp_path: Path, compiler: Callable[[str], Path]
) -> None:
    compiler("").write_bytes(b"\0no program")
    with pytest.raises(DeviceError, match="found that it does not"):
        open_library(str(tmp_path / "cache"))


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DeviceError, match="cannot be written") as caught:
        open_library(str(tmp_path / "file" / "cache"))
    assert "kernels.cache_dir" in caught.value.hint


def test_no_folder_is_told() -> None:
    with pytest.raises(DeviceError, match="no folder to keep them in"):
        open_library("")


def test_a_damaged_library_is_told(tmp_path: Path) -> None:
    name = library_name(find_compiler(), sources())
    (tmp_path / name).write_bytes(b"no library")
    with pytest.raises(DeviceError, match="cannot be loaded") as caught:
        open_library(str(tmp_path))
    assert "remove the file" in caught.value.hint
