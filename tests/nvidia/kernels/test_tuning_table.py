"""Is the table of tunings read once, whole, and refused where it names what is not there?"""

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest
from deepinfer_core.errors import ConfigError
from deepinfer_core.interfaces.operators.gemm import GemmDenseSpec
from deepinfer_core.interfaces.operators.tunings import FastestTuning, SpecChoices, TunedKernel
from deepinfer_nvidia.kernels.catalogue import catalogue
from deepinfer_nvidia.kernels.tuning import KernelTuning
from deepinfer_nvidia.kernels.tuning.choices import choice_for, text_with
from deepinfer_nvidia.kernels.tuning.table import FIGURES, entries, read_table, shipped_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(KernelTuning):
    """Of a kernel that does not exist."""

    rows: int
    is_swapped: bool = False
    parts: int = 1
    cores: int = 132


ITEM: dict[str, Any] = {"few_us": 1, "full_us": 1.5, "tuning": {"rows": 8}}


def read(items: Any, **more: Any) -> Any:
    table = {"hardware": "X", "date": "2026-01-02", "kernels": {"gemm_dense": items}, "choices": []}
    table |= more
    return read_table("a.json", json.dumps(table), lambda kernel: Tuning)


def test_an_item_becomes_a_tuning_and_its_figures() -> None:
    (found,) = read([ITEM]).kernels["gemm_dense"]
    assert found.kernel == "gemm_dense"
    assert found.tuning == Tuning(rows=8)
    assert dict(found.figures) == {"few_us": 1.0, "full_us": 1.5}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tuning": {"rows": 8, "row": 8}}, r"gemm_dense\[0\], found tuning.row"),
        ({"tuning": {}}, "it needs rows"),
        ({"tuning": {"rows": 8.0}}, "tuning.rows = 8.0"),
        ({"tuning": {"rows": True}}, "tuning.rows = True"),
        ({"tuning": {"rows": 8, "is_swapped": 1}}, "tuning.is_swapped = 1"),
        ({"tuning": {"rows": 8, "pass_configs": []}}, "tuning.pass_configs"),
        ({"few_us": "1"}, "few_us = '1'"),
        ({"instead_of": "gemm_dens"}, "instead_of = 'gemm_dens'"),
        ({"fast_us": 1}, "unknown 'fast_us'"),
    ],
)
def test_a_field_that_the_kernel_does_not_have_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read([ITEM | change])


@pytest.mark.parametrize("name", ["few_us", "tuning"])
def test_a_missing_part_of_an_item_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=f"missing '{name}'"):
        read([{key: value for key, value in ITEM.items() if key != name}])


def test_an_unknown_kernel_is_named() -> None:
    with pytest.raises(ConfigError, match="a kernel 'gemm_dens'"):
        read([], kernels={"gemm_dens": []})


def test_an_unknown_part_of_the_file_is_named() -> None:
    with pytest.raises(ConfigError, match="unknown 'kernel'"):
        read([], kernel={})


@pytest.mark.parametrize("kernel", sorted(FIGURES))
def test_the_shipped_table_has_every_kernel_that_is_chosen_by_it(kernel: str) -> None:
    assert kernel in catalogue().kernels
    assert entries(kernel)
    assert len({one.tuning for one in entries(kernel)}) == len(entries(kernel))


def test_a_kernel_without_a_list_has_no_tunings() -> None:
    assert entries("transform_rope") == ()


SPEC = {"in_width": 8192, "out_width": 5120, "groups": 1, "out_dtype": "bfloat16"}
STAMP = {"hardware": "X", "date": "2026-01-02", "commit": "abc"}


def row(at: int, serves: list[int], **more: Any) -> dict[str, Any]:
    tuning = {"rows": 64, **more}
    figures = {"at": at, "serves": serves, "us": 12.5, "spread_us": 0.25}
    return {**figures, "kernel": "hopper/gemm_dense", "tuning": tuning}


def chosen(*rows: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    return [{"operator": "gemm_dense", "spec": SPEC, **STAMP, "rows": list(rows), **more}]


def test_a_choice_serves_the_rows_that_it_says() -> None:
    found = read([ITEM], choices=chosen(row(16, [9, 16]), row(64, [17, 0], is_swapped=True)))
    (choices,) = found.choices.values()
    assert list(found.choices) == [("gemm_dense", GemmDenseSpec(**SPEC))]
    small, large = Tuning(rows=64), Tuning(rows=64, is_swapped=True)
    served = {rows: choice_for(choices, rows) for rows in (8, 9, 16, 17, 5000)}
    tunings = {rows: one and one.choice.tuning for rows, one in served.items()}
    assert tunings == {8: None, 9: small, 16: small, 17: large, 5000: large}
    assert (choices[0].rows, choices[0].seconds, choices[0].spread_s) == (16, 12.5e-6, 0.25e-6)


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        (chosen(row(16, [1, 16]), operator="gemm_dens"), "an operator 'gemm_dens'"),
        (chosen(row(16, [1, 16]), spec={"in_width": 1}), "missing 'out_width'"),
        (chosen(row(16, [1, 16]), note=""), "unknown 'note'"),
        (chosen(row(16, [17, 0])), "16 rows are among them"),
        (chosen(row(16, [1, 15])), "16 rows are among them"),
        (chosen(row(16, [1, 16], row=1)), r"choices\[0\].rows\[0\], found tuning.row"),
        (chosen(row(16, [1, 16]) | {"kernel": "gemm_experts"}), "it is one of gemm_dense"),
        (chosen(row(16, [1, 16])) * 2, "a spec for the second time"),
        (chosen(row(16, [1, 16]), row(64, [17, 0], parts=2)), r"parts = \[1, 2\]"),
    ],
)
def test_a_choice_that_does_not_fit_is_named(choices: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read([ITEM], choices=choices)


@pytest.mark.parametrize(
    ("serves", "is_whole"),
    [
        ([[1, 16], [17, 0]], True),
        ([[1, 16], [18, 0]], False),
        ([[2, 16], [17, 0]], False),
        ([[1, 16], [17, 64]], False),
    ],
)
def test_a_spec_whose_k_is_divided_otherwise_has_choices_for_all_rows(
    serves: list[list[int]], is_whole: bool
) -> None:
    """Else the bits of a row would depend on how many rows are beside it."""
    rows = [row(16, serves[0], parts=2), row(64, serves[1], parts=2)]
    if is_whole:
        assert read([ITEM], choices=chosen(*rows)).choices
        return
    with pytest.raises(ConfigError, match="rows that nothing serves"):
        read([ITEM], choices=chosen(*rows))


def of_spec(us: float, **more: Any) -> SpecChoices:
    one = TunedKernel(kernel="hopper/gemm_dense", tuning=Tuning(rows=64, **more))
    fastest = FastestTuning(rows=16, serves=(1, 0), choice=one, seconds=us / 1e6, spread_s=0.25e-6)
    return SpecChoices(operator="gemm_dense", spec=GemmDenseSpec(**SPEC), fastest=[fastest])


def test_a_table_without_other_choices_is_the_same_text() -> None:
    assert text_with(shipped_text(), [], **STAMP) == shipped_text()


def test_measured_choices_take_the_place_of_those_of_their_specs() -> None:
    """What is written is read again; cores are those of the device, whichever it is."""
    other = replace(of_spec(1.0), spec=GemmDenseSpec(**(SPEC | {"in_width": 4096})))
    table = {"hardware": "X", "date": "2025-01-02", "kernels": {"gemm_dense": [ITEM]}}
    text = text_with(json.dumps(table | {"choices": []}), [of_spec(9.0), other], **STAMP)
    text = text_with(text, [of_spec(7.0, is_swapped=True, cores=78)], **STAMP)
    found = read_table("a.json", text, lambda kernel: Tuning)
    assert found.kernels == read([ITEM]).kernels
    assert found.choices == {
        ("gemm_dense", one.spec): tuple(one.fastest)
        for one in (other, of_spec(7.0, is_swapped=True))
    }
    assert [one["commit"] for one in json.loads(text)["choices"]] == ["abc", "abc"]
