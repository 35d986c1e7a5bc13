"""Are kernels compiled at the same time, each once, and is every failure that kernel's own?"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.engine.kernels.compiling import LATE, compile_all, default_jobs
from deepinfer_core.interfaces.operators.wanted import WantedKernel
from deepinfer_core.telemetry.progress import PhaseAdvanced, PhaseFinished, ProgressStream

Make = Callable[[str], WantedKernel]
GIB = 1 << 30


@pytest.mark.parametrize(
    ("threads", "memory_bytes", "jobs"),
    [(16, 0, 16), (16, 64 * GIB, 16), (16, 9 * GIB, 4), (16, 4 * GIB, 2), (2, GIB, 1), (1, 0, 1)],
)
def test_there_are_as_many_jobs_as_threads_and_memory_allow(
    threads: int, memory_bytes: int, jobs: int
) -> None:
    assert default_jobs(threads, memory_bytes) == jobs


def test_two_jobs_compile_at_the_same_time(kernel: Make) -> None:
    """Each of the two waits for the other."""
    kernels = [kernel("together 1"), kernel("together 2")]
    results = compile_all(kernels, 2, ProgressStream())
    assert [one.problem for one in results] == ["", ""]


def test_one_process_compiles_one_kernel_after_the_other(kernel: Make, tmp_path: Path) -> None:
    specs = ["a", "b", "c"]
    results = compile_all([kernel(spec) for spec in specs], 1, ProgressStream())
    assert [(one.kernel.spec, one.problem) for one in results] == [(spec, "") for spec in specs]
    assert len({(tmp_path / "kept" / spec).read_text() for spec in specs}) == 1


def test_a_failure_has_the_compilers_last_words_and_stops_no_other_kernel(kernel: Make) -> None:
    results = compile_all([kernel("wrong"), kernel("a")], 1, ProgressStream())
    wrong, right = results
    assert wrong.problem.endswith("error: this is no kernel")
    assert len(wrong.problem.splitlines()) <= 12
    assert right.problem == ""


def test_a_compiler_that_aborts_takes_only_its_kernel_with_it(kernel: Make) -> None:
    results = compile_all([kernel("abort"), kernel("a")], 1, ProgressStream())
    assert "cannot go on" in results[0].problem
    assert results[0].problem.endswith("the compiling process ended with -6")
    assert results[1].problem == ""


def test_what_cannot_be_brought_over_is_a_failure_of_that_kernel(
    kernel: Make, tmp_path: Path
) -> None:
    """The children look for modules where the parent does."""
    kernels = [kernel("a")]
    (tmp_path / "site" / "acme_kernel.py").unlink()
    (result,) = compile_all(kernels, 1, ProgressStream())
    assert "No module named 'acme_kernel'" in result.problem


def test_progress_counts_kernels_and_names_operators(kernel: Make) -> None:
    seen: list[Any] = []
    compile_all([kernel("a"), kernel("b")], 2, ProgressStream(seen.append))
    advanced = [one for one in seen if isinstance(one, PhaseAdvanced)]
    assert [(one.done, one.total, one.detail) for one in advanced] == [
        (1, 2, "acme_kernel"), (2, 2, "acme_kernel"),
    ]  # fmt: skip
    assert [one.outcome for one in seen if isinstance(one, PhaseFinished)] == ["done"]


def test_who_is_interrupted_leaves_no_process_behind(kernel: Make, tmp_path: Path) -> None:
    began = tmp_path / "kept" / "forever began"

    class Interrupted(Exception):
        pass

    def interrupt(event: object) -> None:
        if isinstance(event, PhaseAdvanced):
            while not began.exists():
                time.sleep(0.01)
            raise Interrupted

    with pytest.raises(Interrupted):
        compile_all([kernel("a"), kernel("forever")], 1, ProgressStream(interrupt))
    assert not [one for one in threading.enumerate() if one.name == "deepinfer-compile"]
    assert not (tmp_path / "kept" / "forever").exists()


def test_after_its_time_no_kernel_is_begun(kernel: Make) -> None:
    """A worker would have refused the second one in its own words."""
    results = compile_all([kernel("a"), kernel("wrong")], 1, ProgressStream(), limit_s=-1.0)
    assert [one.problem for one in results] == [LATE, LATE]
    (result,) = compile_all([kernel("a")], 1, ProgressStream(), limit_s=600.0)
    assert result.problem == ""
