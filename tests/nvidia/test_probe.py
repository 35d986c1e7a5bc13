"""Does each thing that may be missing have its own reason, and something to do about it?"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.plugin import ModelNeeds, ProbeContext, Verdict

from deepinfer_nvidia import probe

Make = Callable[..., ProbeContext]


@pytest.fixture(autouse=True)
def _owners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_owners", lambda: ["tilelang"])


def test_where_nothing_is_missing_both_run(make_context: Make) -> None:
    device, kernels = probe.cuda(make_context()), probe.tilelang(make_context())
    assert device == Verdict(True, score=probe.SCORE, reason="NVIDIA H200")
    assert kernels == Verdict(True, score=probe.SCORE, reason="kernels for sm_90a")


NO_DEVICE: list[tuple[dict[str, Any], str]] = [
    ({"problem": "no NVIDIA driver", "fix": "install it"}, "no NVIDIA driver"),
    ({"problem": "deepinfer_nvidia.facts ended with -6"}, "deepinfer_nvidia.facts ended with -6"),
    ({"count": 0}, "no NVIDIA device"),
    ({"extra": {"torch_cuda": ""}}, "torch is a build without CUDA"),
    (
        {"extra": {"torch_cuda": "13.0", "driver_cuda": "12.9"}},
        "torch is built for CUDA 13.0, the driver runs CUDA 12.9",
    ),
    ({"capability": (8, 9)}, "needs capability 9.0, found 8.9 (NVIDIA H200)"),
    ({"capability": (8, 6)}, "needs capability 9.0, found 8.6 (NVIDIA H200)"),
    ({"capability": ()}, "needs capability 9.0, found none (NVIDIA H200)"),
]


@pytest.mark.parametrize(("changes", "reason"), NO_DEVICE)
def test_without_a_usable_device_nothing_runs(
    make_context: Make, changes: dict[str, Any], reason: str
) -> None:
    for verdict in (probe.cuda(make_context(**changes)), probe.tilelang(make_context(**changes))):
        assert (verdict.usable, verdict.reason) == (False, reason)


@pytest.mark.parametrize(
    ("changes", "reason"), [case for case in NO_DEVICE if "problem" not in case[0]]
)
def test_every_refusal_says_what_to_do(
    make_context: Make, changes: dict[str, Any], reason: str
) -> None:
    assert probe.cuda(make_context(**changes)).fix


@pytest.mark.parametrize("capability", [(9, 0), (10, 0), (12, 0)])
def test_from_capability_9_0_on_it_runs(make_context: Make, capability: tuple[int, int]) -> None:
    assert probe.cuda(make_context(capability=capability)).usable


@pytest.mark.parametrize(("built", "runs"), [("12.8", "13.0"), ("13.0", "13.2"), ("13.2", "13.0")])
def test_a_driver_of_the_same_or_a_later_major_runs_torch(
    make_context: Make, built: str, runs: str
) -> None:
    context = make_context(extra={"torch_cuda": built, "driver_cuda": runs})
    assert probe.cuda(context).usable


@pytest.mark.parametrize(
    ("versions", "reason"),
    [
        ({}, "tilelang is not installed"),
        ({"tilelang": "0.1.14"}, "needs tilelang 0.1.15, found 0.1.14"),
        ({"tilelang": "0.1.16"}, "needs tilelang 0.1.15, found 0.1.16"),
    ],
)
def test_kernels_need_the_release_of_the_compiler_that_was_tested(
    make_context: Make, versions: dict[str, str], reason: str
) -> None:
    verdict = probe.tilelang(make_context(versions))
    assert (verdict.usable, verdict.reason, verdict.mendable) == (False, reason, True)
    assert verdict.fix == "pip install tilelang==0.1.15"
    assert probe.cuda(make_context(versions)).usable


def test_a_local_build_of_the_same_release_counts(make_context: Make) -> None:
    assert probe.tilelang(make_context({"tilelang": "0.1.15+cu130"})).usable


def test_a_compiler_that_another_distribution_owns_is_refused(
    make_context: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_owners", lambda: ["tilelang", "tilelang-ascend"])
    verdict = probe.tilelang(make_context())
    assert verdict.reason == "the import name tilelang also belongs to tilelang-ascend"
    assert "--force-reinstall" in verdict.fix


def test_without_nvcc_only_compiled_kernels_run(make_context: Make, tmp_path: Path) -> None:
    def verdict() -> Verdict:
        return probe.tilelang(make_context(extra={"nvcc": ""}, cache_dir=str(tmp_path)))

    assert verdict().reason == f"no nvcc, and no compiled kernels in {tmp_path / 'nvidia'}"
    assert verdict().mendable
    (tmp_path / "nvidia").mkdir()
    assert not verdict().usable
    (tmp_path / "nvidia" / "kernel").touch()
    assert verdict().usable


def test_without_nvcc_and_without_a_cache_folder_nothing_is_compiled(make_context: Make) -> None:
    verdict = probe.tilelang(make_context(extra={"nvcc": ""}))
    assert verdict.reason == "no nvcc, and no compiled kernels in a cache folder"


@pytest.mark.parametrize("compute", ["float32", "float64"])
def test_kernels_compute_in_bfloat16_only(make_context: Make, compute: str) -> None:
    verdict = probe.tilelang(make_context(needs=ModelNeeds(compute=compute)))
    assert verdict.reason == f"computes in bfloat16; the model asks for {compute}"
    assert not verdict.mendable


def test_the_owner_of_an_import_name_is_found_in_the_metadata() -> None:
    claims = probe.importlib_metadata.packages_distributions().get("tilelang", [])
    assert sorted(set(claims)) in ([], ["tilelang"])


def test_for_a_device_that_is_not_here_no_driver_and_no_build_of_torch_is_needed(
    make_context: Make,
) -> None:
    context = make_context(extra={"is_absent": True, "torch_cuda": "", "driver_cuda": ""})
    assert probe.cuda(context).usable
    assert probe.tilelang(context).usable


def test_a_device_that_is_not_here_still_needs_the_compiler(make_context: Make) -> None:
    context = make_context({}, extra={"is_absent": True})
    assert probe.tilelang(context).reason == "tilelang is not installed"


WRAPPED = {"tile_kernels": ("tile-kernels", "2.1.0"), "deep_gemm": ("deep-gemm", "2.6.1")}
BOTH = {"tilelang": "0.1.15", **dict(WRAPPED.values())}


@pytest.mark.parametrize("name", WRAPPED)
def test_a_library_that_is_there_ranks_below_the_own_kernels(make_context: Make, name: str) -> None:
    verdict = getattr(probe, name)(make_context(BOTH))
    assert (verdict.usable, verdict.score) == (True, probe.WRAPPER_SCORE)
    assert verdict.score < probe.tilelang(make_context(BOTH)).score
    assert name in verdict.reason


@pytest.mark.parametrize("name", WRAPPED)
def test_a_library_that_is_not_there_is_named_with_what_to_do(
    make_context: Make, name: str
) -> None:
    verdict = getattr(probe, name)(make_context())
    assert (verdict.usable, verdict.mendable) == (False, True)
    assert verdict.reason == f"{name} is not installed"
    assert WRAPPED[name][1] in verdict.fix
    assert probe.tilelang(make_context()).usable


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize("found", ["1.0.0", "2.0.9", "3.0"])
def test_another_release_of_a_library_is_refused(make_context: Make, name: str, found: str) -> None:
    key, tested = WRAPPED[name]
    verdict = getattr(probe, name)(make_context({**BOTH, key: found}))
    assert verdict.reason == f"needs {name} {tested}, found {found}"
    assert tested in verdict.fix


@pytest.mark.parametrize("name", WRAPPED)
def test_a_local_build_of_a_library_counts(make_context: Make, name: str) -> None:
    key, tested = WRAPPED[name]
    assert getattr(probe, name)(make_context({**BOTH, key: f"{tested}+local"})).usable


@pytest.mark.parametrize("name", WRAPPED)
def test_a_library_runs_on_the_devices_that_it_has_kernels_for(
    make_context: Make, name: str
) -> None:
    for capability in ((9, 0), (10, 3)):
        assert getattr(probe, name)(make_context(BOTH, capability=capability)).usable
    verdict = getattr(probe, name)(make_context(BOTH, capability=(12, 0)))
    reason = f"{name} has kernels for capability 9.x and 10.x, found 12.0 (NVIDIA H200)"
    assert (verdict.reason, verdict.mendable) == (reason, False)
    assert verdict.fix == "use nvidia.tilelang"


@pytest.mark.parametrize("name", WRAPPED)
def test_a_library_needs_nvcc_even_if_own_kernels_are_compiled(
    make_context: Make, name: str, tmp_path: Path
) -> None:
    (tmp_path / "nvidia").mkdir()
    (tmp_path / "nvidia" / "kernel").touch()
    context = make_context(BOTH, extra={"nvcc": ""}, cache_dir=str(tmp_path))
    assert probe.tilelang(context).usable
    verdict = getattr(probe, name)(context)
    assert verdict.reason.startswith(f"{name} compiles its kernels when they are called")
    assert verdict.mendable


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize(
    ("versions", "changes"),
    [
        ({}, {}),
        (BOTH, {"count": 0}),
        (BOTH, {"capability": (8, 9)}),
        (BOTH, {"needs": ModelNeeds(compute="float32")}),
    ],
)
def test_a_library_needs_what_the_own_kernels_need(
    make_context: Make, name: str, versions: dict[str, str], changes: dict[str, Any]
) -> None:
    """They compute what the library does not."""
    context = make_context(versions, **changes)
    assert getattr(probe, name)(context) == probe.tilelang(context)
