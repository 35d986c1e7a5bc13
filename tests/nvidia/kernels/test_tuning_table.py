"""Is the table of tunings read once, whole, and refused where it names what is not there?"""

import json
from dataclasses import dataclass
from typing import Any

import pytest
from deepinfer_core.errors import ConfigError
from deepinfer_nvidia.kernels.catalogue import catalogue
from deepinfer_nvidia.kernels.tuning import KernelTuning
from deepinfer_nvidia.kernels.tuning.table import FIGURES, entries, read_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(KernelTuning):
    """Of a kernel that does not exist."""

    rows: int
    is_swapped: bool = False


ITEM: dict[str, Any] = {"few_us": 1, "full_us": 1.5, "tuning": {"rows": 8}}


def read(items: Any, **more: Any) -> Any:
    table = {"hardware": "X", "date": "2026-01-02", "kernels": {"gemm_dense": items}, **more}
    return read_table("a.json", json.dumps(table), lambda kernel: Tuning)


def test_an_item_becomes_a_tuning_and_its_figures() -> None:
    (found,) = read([ITEM])["gemm_dense"]
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
