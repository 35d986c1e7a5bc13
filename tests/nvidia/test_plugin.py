"""Is what the distribution offers described rightly, and does it name what exists?"""

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name

import pytest
from deepinfer_core.interfaces.kinds import CONTRACTS, SLOTS
from deepinfer_core.plugin import ComponentSpec, DeviceFacts, ModelNeeds, ProbeContext
from deepinfer_core.plugin.choice import Wish, choose
from deepinfer_core.plugin.discovery import Installed
from deepinfer_core.plugin.loading import Offer
from deepinfer_core.plugin.probing import Candidate, call_probe, judge

from deepinfer_nvidia import plugin, probe

SPECS = list(plugin.deepinfer_components())
SOURCES = Path(plugin.__file__).parent
CPU = DeviceFacts(device="cpu", model="A CPU", count=1)


def judged(context: ProbeContext) -> list[Candidate]:
    owner = Installed("nvidia", "deepinfer-nvidia", "0.1.0", "deepinfer_nvidia.plugin")
    return judge([Offer(spec, owner) for spec in SPECS], context, (), 60.0)


def test_the_device_is_offered_first() -> None:
    assert next((spec.kind, spec.name) for spec in SPECS) == ("device", "nvidia.cuda")


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.kind}-{spec.name}")
def test_a_description_names_what_exists(spec: ComponentSpec) -> None:
    assert spec.contract == CONTRACTS[spec.kind]
    assert set(spec.slots) <= set(SLOTS[spec.kind])
    assert spec.devices == ("nvidia",)
    for reference in filter(None, (spec.factory, spec.probe, spec.options)):
        assert callable(resolve_name(reference))


def test_on_a_cpu_everything_is_unusable_with_a_reason_and_a_fix() -> None:
    found = judged(ProbeContext(device=CPU, needs=ModelNeeds(), versions={}))
    assert {item.judgement for item in found} == {"unusable"}
    for item in found:
        assert item.reason.endswith("nvidia; the device is cpu")
        assert item.fix == 'set device = "nvidia"'


def test_where_the_device_is_missing_its_problem_is_the_reason() -> None:
    facts = DeviceFacts(device="nvidia", problem="no NVIDIA driver", fix="install it")
    for item in judged(ProbeContext(device=facts, needs=ModelNeeds(), versions={})):
        assert (item.judgement, item.reason, item.fix) == (
            "unusable",
            "no NVIDIA driver",
            "install it",
        )


def test_where_everything_is_there_the_device_is_usable(
    make_context: Callable[..., ProbeContext],
) -> None:
    device = next(item for item in judged(make_context()) if item.spec.kind == "device")
    assert (device.usable, device.reason) == (True, "NVIDIA H200")


@pytest.mark.parametrize(
    ("kind", "slot", "name"),
    [("gemm", "dense", "nvidia.deep_gemm"), ("transform", "transform", "nvidia.tile_kernels")],
)
def test_a_wrapped_library_is_taken_when_it_is_named_and_only_then(
    make_context: Callable[..., ProbeContext],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    slot: str,
    name: str,
) -> None:
    """With everything installed, auto takes the kernels of the distribution."""
    monkeypatch.setattr(probe, "_owners", lambda: ["tilelang"])
    versions = {"tilelang": "0.1.15", "tile-kernels": "2.1.0", "deep-gemm": "2.6.1"}
    # The probes are called here: in children the fake owners would be lost.
    found = [
        replace(item, judgement="usable", score=verdict.score, reason=verdict.reason)
        for item in judged(make_context({}))
        if item.spec.kind == kind
        and (verdict := call_probe(item.spec.probe, make_context(versions))).usable
    ]
    picks = {
        str(use): choose(Wish(kind=kind, slot=slot, use=use), found, "nvidia").picked
        for use in ("auto", name)
    }
    names = {use: picked and picked.spec.name for use, picked in picks.items()}
    assert names == {"auto": "nvidia.tilelang", name: name}


def test_only_kernels_import_the_kernel_compiler() -> None:
    outside = [file for file in SOURCES.rglob("*.py") if "kernels" not in file.parts]
    assert len(outside) > 5
    for file in outside:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names.append(node.module or "")
            assert "tilelang" not in [name.partition(".")[0] for name in names], file
