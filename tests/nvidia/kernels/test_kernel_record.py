"""Does a kernel lose what was recorded of it when it changes, and only then?"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.bench.stamp import Stamp
from deepinfer_core.cli import bench_kernels, main
from deepinfer_core.errors import ConfigError
from deepinfer_core.interfaces.operators.catalogue import Build, KernelCatalogue
from deepinfer_core.testing import kernel_trials
from deepinfer_core.testing.kernel_cases import cases_of
from deepinfer_core.testing.kernel_record import content_of, entry_of, read_record, write_entries
from deepinfer_core.testing.tiles import InterpretedKernels
from deepinfer_nvidia.kernels.catalogue import catalogue
from deepinfer_nvidia.kernels.hopper import attention_sparse
from deepinfer_nvidia.kernels.tuning import KernelTuning

KERNEL = "transform_engram_rows"
WHOLE = catalogue()


def content(changed: KernelCatalogue = WHOLE, kernel: str = KERNEL) -> str:
    return content_of(changed, kernel)


def built_with(change: Callable[[Any], Any]) -> KernelCatalogue:
    """The kernel of another spec than was asked for, as a changed file would build."""

    def load(kernel: str) -> Build:
        build = WHOLE.load(kernel)
        return lambda spec, tuning: build(change(spec), tuning)

    return replace(WHOLE, load=load)


def test_an_unchanged_kernel_has_the_same_content() -> None:
    assert content() == content(catalogue())
    assert len(content()) == 16


def test_another_text_is_another_content() -> None:
    changed = built_with(lambda spec: replace(spec, offsets=tuple(x + 1 for x in spec.offsets)))
    assert content(changed) != content()


def test_another_tuning_is_another_content() -> None:
    assert content(replace(WHOLE, tune=lambda *_: KernelTuning(threads=64))) != content()


def test_another_switch_of_the_compiler_is_another_content() -> None:
    usual = WHOLE.tune(KERNEL, None, 0)
    switched = replace(usual, pass_configs=(("tl.disable_warp_specialized", True),))
    assert content(replace(WHOLE, tune=lambda *_: switched)) != content()


def test_a_tuning_that_may_be_chosen_belongs_to_the_content() -> None:
    more = replace(WHOLE, choices=lambda *_: (KernelTuning(threads=96),))
    assert content(more) != content()


def test_the_cuda_text_of_a_kernel_belongs_to_its_content(monkeypatch: pytest.MonkeyPatch) -> None:
    before = content(kernel="hopper/attention_sparse")
    text = attention_sparse._source_text
    monkeypatch.setattr(
        attention_sparse, "_source_text", lambda *given: text(*given) + "\n// another line\n"
    )
    assert content(kernel="hopper/attention_sparse") != before


def test_an_entry_is_found_again_until_the_content_changes(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_entries(path, "measured", {"a": {"content": "1", "date": "2026-01-02"}})
    record = read_record(path)
    assert entry_of(record, "a", "measured", "1") == (record["a"]["measured"], True)
    assert entry_of(record, "a", "measured", "2") == (record["a"]["measured"], False)
    assert entry_of(record, "a", "compiled", "1") == ({}, False)
    assert entry_of(record, "b", "measured", "1") == ({}, False)


def test_writing_keeps_what_other_runs_wrote(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_entries(path, "measured", {"b": {"content": "1"}})
    write_entries(path, "compiled", {"b": {"content": "2"}, "a": {"content": "3"}})
    write_entries(path, "measured", {"b": {"content": "4"}})
    assert json.loads(path.read_text()) == {
        "a": {"compiled": {"content": "3"}},
        "b": {"measured": {"content": "4"}, "compiled": {"content": "2"}},
    }


def test_a_reader_sees_the_old_record_until_the_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other processes read it while one writes."""
    path, seen = tmp_path / "record.json", []
    write_entries(path, "measured", {"a": {"content": "1"}})
    replace_path = Path.replace

    def watched(self: Path, target: Path) -> Path:
        seen.append(read_record(path)["a"]["measured"]["content"])
        return replace_path(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    write_entries(path, "measured", {"a": {"content": "2"}})
    assert seen == ["1"]
    assert read_record(path)["a"]["measured"]["content"] == "2"
    assert [file.name for file in tmp_path.iterdir()] == ["record.json"]


def test_without_a_file_nothing_is_recorded(tmp_path: Path) -> None:
    assert read_record(tmp_path / "none.json") == {}


def test_the_shipped_record_names_kernels_of_the_catalogue() -> None:
    assert set(read_record(WHOLE.measured)) <= set(WHOLE.kernels)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """Runs a kernel's small cases and records it if it is right."""
    small = tuple(case for case in cases_of(KERNEL) if case.small)
    monkeypatch.setattr(kernel_trials, "cases_of", lambda operator: small)
    stamp = Stamp(hardware="X", date="2026-01-02", commit="abc")

    def recorded(changed: KernelCatalogue) -> Any:
        path = tmp_path / "record.json"
        wrong = bench_kernels._recorded(path, changed, InterpretedKernels(), [KERNEL], "cpu", stamp)
        return wrong, read_record(path)

    return recorded


def test_a_kernel_that_is_right_in_all_its_trials_is_recorded(
    recorded: Callable[..., Any],
) -> None:
    wrong, record = recorded(WHOLE)
    entry = {"content": content(), "date": "2026-01-02", "hardware": "X", "commit": "abc"}
    assert (wrong, record) == ([], {KERNEL: {"measured": entry}})


def test_a_wrong_kernel_is_not_recorded(recorded: Callable[..., Any]) -> None:
    changed = built_with(lambda spec: replace(spec, offsets=tuple(x + 1 for x in spec.offsets)))
    wrong, record = recorded(changed)
    assert record == {}
    assert wrong[0].case.startswith(f"{KERNEL}[")
    assert wrong[0].complaints


def test_what_was_measured_elsewhere_is_taken_over_while_the_kernel_is_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was compiled here stays; a kernel that has changed keeps its old entry."""
    other, record = tmp_path / "other.json", tmp_path / "record.json"
    compiled, old = {"content": "1", "words": "none spilled"}, {"content": "0"}
    write_entries(record, "compiled", {KERNEL: compiled, "transform_cast": compiled})
    write_entries(record, "measured", {"transform_cast": old})
    measured = {"content": content(), "date": "2026-01-02", "hardware": "X", "commit": "abc"}
    write_entries(other, "measured", {KERNEL: measured, "transform_cast": {"content": "2"}})
    command = ["bench", "kernels", "--from", str(other), "--record", str(record)]
    assert main([*command, "--operator", KERNEL]) == 0
    assert read_record(record) == {
        KERNEL: {"compiled": compiled, "measured": measured},
        "transform_cast": {"compiled": compiled, "measured": old},
    }
    assert main([*command, "--operator", "transform_cast"]) == 1
    assert read_record(record)["transform_cast"] == {"compiled": compiled, "measured": old}
    assert "transform_cast: not taken: it has changed since" in capsys.readouterr().out


def test_nothing_is_taken_from_nowhere_or_to_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, none = tmp_path / "record.json", tmp_path / "none.json"
    record.write_text("{}")
    assert main(["bench", "kernels", "--from", str(none), "--record", str(record)]) == 2
    assert f"asked to take what {none} says, found no such file" in capsys.readouterr().err
    assert main(["bench", "kernels", "--from", str(record)]) == 2
    assert f"asked to take what {record} says, found no --record" in capsys.readouterr().err


NO_RECORDS = {
    "{": "no JSON",
    "[]": "the file is no object",
    '{"a": 1}': "a is no object",
    '{"a": {"measured": []}}': "a.measured is no object",
    '{"a": {"measured": {"content": 1}}}': "no text in a.measured.content",
    '{"a": {"measured": {"date": "2026-01-02"}}}': "no content in a.measured",
}


@pytest.mark.parametrize("text", NO_RECORDS)
def test_a_file_that_is_no_record_is_refused_in_words(tmp_path: Path, text: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        read_record(path)
    assert str(path) in raised.value.message
    assert f"found {NO_RECORDS[text]}" in raised.value.message
    assert "bench kernels --record" in raised.value.hint


def test_a_record_that_cannot_be_read_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(b"\xff")
    for wrong, words in ((path, "no JSON"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError, match=words):
            read_record(wrong)


@pytest.mark.parametrize("options", [["--evidence"], [], ["--from"]])
def test_a_wrong_record_is_refused_before_any_work(
    tmp_path: Path,
    options: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong, good = tmp_path / "wrong.json", tmp_path / "good.json"
    wrong.write_text("[]")
    for name in ("_taken", "_evidence", "_times"):
        monkeypatch.setattr(bench_kernels, name, None)
    files = (
        [str(wrong), "--record", str(good)] if options == ["--from"] else ["--record", str(wrong)]
    )
    assert main(["bench", "kernels", *options, *files]) == 2
    assert f"{wrong}, found the file is no object" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "a"])
def test_processes_are_counted_from_one(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "kernels", "--jobs", text]) == 2
    assert f"'{text}' is no number of processes" in capsys.readouterr().err
