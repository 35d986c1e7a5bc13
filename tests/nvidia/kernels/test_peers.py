"""Is a library timed next to a kernel only where it is installed, in a known release?"""

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from deepinfer_core.testing.kernel_cases import all_cases
from deepinfer_nvidia.kernels import peers
from deepinfer_nvidia.kernels.catalogue import catalogue
from deepinfer_nvidia.probe import DEEP_GEMM, TILE_KERNELS

LIBRARIES = {"deep_gemm": DEEP_GEMM[-1], "tile_kernels": TILE_KERNELS[-1]}


def install(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str]) -> None:
    def version(name: str) -> str:
        if name not in versions:
            raise peers.importlib_metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(peers.importlib_metadata, "version", version)


class Library(ModuleType):
    """Has every name, and notes the calls."""

    def __init__(self, name: str, called: list[tuple[str, Any, Any]]) -> None:
        super().__init__(name)
        self._called = called

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *values, **named: self._called.append((name, values, named))


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any, Any]]:
    """Both libraries are there; the list fills with their calls."""
    calls: list[tuple[str, Any, Any]] = []
    for name in ("deep_gemm", "tile_kernels", *(f"tile_kernels.{part}" for part in PARTS)):
        monkeypatch.setitem(sys.modules, name, Library(name, calls))
    install(monkeypatch, LIBRARIES)
    return calls


PARTS = ("mhc", "moe", "quant", "transform")
CASES = {case.operator: case for case in reversed(all_cases()) if case.small}


def test_without_the_libraries_no_kernel_has_a_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {})
    assert {catalogue().peer(case.operator, case.spec) for case in all_cases()} == {None}


def test_a_release_that_is_not_known_is_no_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {"tile_kernels": "2.2.0", "deep_gemm": "2.5.0"})
    assert peers.peer("transform_mhc_collapse", None) is None


@pytest.mark.parametrize(
    ("operator", "title", "name"),
    [
        ("gemm_dense", f"deep_gemm {DEEP_GEMM[-1]}", "bf16_gemm_nt"),
        ("transform_cast", "tile_kernels 2.1.0", "per_token_cast_and_cast_back"),
        ("transform_gate_topk", "tile_kernels 2.1.0", "moe_topk_gate_forward"),
        ("transform_mhc_collapse", "tile_kernels 2.1.0", "mhc_pre_apply_mix_fwd"),
        ("transform_mhc_expand", "tile_kernels 2.1.0", "mhc_post_fwd"),
        ("transform_rms_norm", "tile_kernels 2.1.0", "norm_forward"),
        ("transform_rope", "tile_kernels 2.1.0", "apply_rotary"),
        ("transform_swiglu", "tile_kernels 2.1.0", "swiglu_forward"),
    ],
)
def test_a_peer_is_called_with_the_arguments_of_a_case(
    called: list[tuple[str, Any, Any]], operator: str, title: str, name: str
) -> None:
    """As the catalogue gives it to whoever times kernels."""
    case = CASES[operator]
    found = catalogue().peer(operator, case.spec)
    assert found is not None
    assert found[0] == title
    given = case.arguments(torch.Generator().manual_seed(0))
    found[1](given)
    assert [entry[0] for entry in called] == [name]


def test_products_of_groups_are_one_call(called: list[tuple[str, Any, Any]]) -> None:
    case = next(
        case for case in all_cases() if case.operator == "gemm_dense" and case.spec.groups == 2
    )
    found = peers.peer(case.operator, case.spec)
    assert found is not None
    found[1](case.arguments(torch.Generator().manual_seed(0)))
    assert [entry[0] for entry in called] == ["einsum"]


def test_what_a_library_does_not_take_has_no_peer(called: list[tuple[str, Any, Any]]) -> None:
    """A norm that changes the dtype."""
    spec = next(
        case.spec
        for case in all_cases()
        if case.operator == "transform_rms_norm" and case.spec.dtype != case.spec.out_dtype
    )
    assert peers.peer("transform_rms_norm", spec) is None


def test_a_kernel_of_no_library_has_no_peer(called: list[tuple[str, Any, Any]]) -> None:
    assert peers.peer("sampler_scan_logits", None) is None
