"""Does the evidence say what was shown, and nothing more?"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.cli import main
from deepinfer_core.interfaces.operators.catalogue import Build, KernelCatalogue
from deepinfer_core.testing import evidence as evidence_module
from deepinfer_core.testing.evidence import KernelEvidence, evidence, evidence_by
from deepinfer_core.testing.kernel_record import content_of, write_entries
from deepinfer_core.testing.tiles import cubin
from deepinfer_core.testing.tiles.kept import KeptResults
from deepinfer_nvidia.kernels.catalogue import catalogue

OPERATOR = "transform_rms_norm"
ONE_ARCH = replace(catalogue(), architectures=("sm_90a",))


def of(changed: KernelCatalogue, folder: Path) -> KernelEvidence:
    (found,) = evidence(changed, [OPERATOR], kept=KeptResults(folder))
    return found


def built_otherwise(change: Callable[[Any], Any]) -> KernelCatalogue:
    """The kernel of another spec than was asked for."""

    def load(operator: str) -> Build:
        build = ONE_ARCH.load(operator)
        return lambda spec, tuning: build(change(spec), tuning)

    return replace(ONE_ARCH, load=load)


@pytest.fixture(autouse=True)
def without_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling is tested where the cubin check is; here it would cost a minute."""
    monkeypatch.setattr(cubin.shutil, "which", lambda name: None)


def test_a_right_kernel_climbs_as_far_as_this_machine_goes(tmp_path: Path) -> None:
    found = of(ONE_ARCH, tmp_path)
    assert found.interpreted.endswith(" cases")
    assert (found.lowered, found.compiled) == ("sm_90a", "no nvcc here")
    assert found.is_right


def test_a_wrong_kernel_names_the_case_and_the_output(tmp_path: Path) -> None:
    found = of(built_otherwise(lambda spec: replace(spec, eps=1.0)), tmp_path)
    assert "out_TD" in found.interpreted
    assert not found.is_right


def test_a_kernel_that_does_what_none_may_do_is_wrong(tmp_path: Path) -> None:
    """Its rows are wider than the arguments."""
    found = of(built_otherwise(lambda spec: replace(spec, width=2 * spec.width)), tmp_path)
    assert "width" in found.interpreted or "shape" in found.interpreted
    assert not found.is_right


@pytest.mark.parametrize(
    ("bytes_spilled", "words", "is_right"),
    [
        (0, "sm_90a: 4 cubins, 99 registers, none spilled", True),
        (8, "spills 8 bytes a thread", False),
    ],
)
def test_a_kernel_that_spills_registers_is_not_shown_to_be_right(
    bytes_spilled: int,
    words: str,
    is_right: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    report = cubin.CubinReport(
        kernel="main_kernel",
        arch="sm_90a",
        registers=99,
        stack_bytes=0,
        spill_store_bytes=bytes_spilled,
        spill_load_bytes=0,
        static_shared_bytes=0,
    )
    monkeypatch.setattr(evidence_module, "find_nvcc", lambda: "nvcc")
    monkeypatch.setattr(evidence_module, "compile_cubin", lambda lowered, kept: report)
    found = of(ONE_ARCH, tmp_path)
    assert words in found.compiled
    assert found.is_right is is_right


@pytest.mark.parametrize(
    ("interpreted", "is_right"), [("1 cases", True), ("no cases", False), ("x: no cases", False)]
)
def test_a_kernel_without_cases_is_not_shown_to_be_right(interpreted: str, is_right: bool) -> None:
    found = KernelEvidence(
        kernel="a",
        backend="b",
        content="1",
        interpreted=interpreted,
        lowered="sm_90a",
        compiled="no nvcc here",
        measured="no",
    )
    assert found.is_right is is_right


def test_a_builder_that_raises_is_said_and_ends_nothing(tmp_path: Path) -> None:
    def load(operator: str) -> Build:
        def build(spec: Any, tuning: Any) -> Any:
            raise ZeroDivisionError("no such tile")

        return build

    found = of(replace(ONE_ARCH, load=load), tmp_path)
    assert found.interpreted.endswith("ZeroDivisionError: no such tile")
    assert found.lowered == "no: ZeroDivisionError: no such tile"
    assert not found.is_right


def test_a_refused_architecture_is_said(tmp_path: Path) -> None:
    found = of(replace(ONE_ARCH, architectures=("sm_90a", "sm_1")), tmp_path)
    assert found.lowered.startswith("no: no architecture 'sm_1'")
    assert not found.is_right


@pytest.mark.parametrize("record", [None, {}, {OPERATOR: {"compiled": {"content": "1"}}}])
def test_without_an_entry_nothing_was_measured(tmp_path: Path, record: Any) -> None:
    path = tmp_path / "measured.json"
    if record is not None:
        path.write_text(json.dumps(record), encoding="utf-8")
    assert of(replace(ONE_ARCH, measured=path), tmp_path / "kept").measured == "no"


def test_a_kernel_that_changed_loses_its_mark(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    entry = {"date": "2026-01-02", "hardware": "X", "commit": "abc"}
    entry["content"] = content_of(ONE_ARCH, OPERATOR)
    write_entries(path, "measured", {OPERATOR: entry})
    same = of(replace(ONE_ARCH, measured=path), tmp_path / "kept")
    changed = built_otherwise(lambda spec: replace(spec, eps=1.0))
    other = of(replace(changed, measured=path), tmp_path / "kept")
    assert same.measured == "2026-01-02, X, abc"
    assert same.content == entry["content"]
    assert other.measured == "no: it has changed since 2026-01-02, X, abc"


def test_a_kernel_for_one_architecture_is_shown_by_its_twin(tmp_path: Path) -> None:
    """It is lowered for its own architecture alone."""
    (found,) = evidence(catalogue(), ["hopper/attention_sparse"], kept=KeptResults(tmp_path))
    assert found.interpreted == "not possible: its twin attention_sparse is interpreted"
    assert found.lowered == "sm_90a"
    assert found.is_right


def test_the_command_line_lists_the_rungs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "kernels", "--evidence", "--operator", OPERATOR, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rungs = ["interpreted", "lowered", "compiled", "measured"]
    assert all(list(one) == ["kernel", "backend", "content", *rungs] for one in found)
    names = [one["kernel"] for one in found]
    assert OPERATOR in names
    assert all(OPERATOR in name for name in names)


def test_what_was_compiled_is_recorded(tmp_path: Path) -> None:
    """Without a compiler nothing was."""
    path = tmp_path / "record.json"
    command = ["bench", "kernels", "--evidence", "--operator", OPERATOR, "--record", str(path)]
    assert main(command) == 0
    assert not path.exists()


@pytest.mark.slow
def test_several_processes_say_the_same_in_the_same_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "")  # no nvcc there either
    names = [OPERATOR, "hopper/attention_sparse"]
    reference = "deepinfer_nvidia.kernels.catalogue:catalogue"
    alone, together = (list(evidence_by(jobs, reference, names, tmp_path)) for jobs in (1, 2))
    assert [row.kernel for row in alone] == names
    assert together == alone


def test_an_unknown_operator_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "kernels", "--evidence", "--operator", "nothing"]) == 2
    assert "no kernel's name holds 'nothing'" in capsys.readouterr().err
