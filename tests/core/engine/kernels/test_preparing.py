"""Is only that compiled which is missing, and does an engine not start without it?"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.config.settings import Settings
from deepinfer_core.engine.kernels import preparing
from deepinfer_core.engine.kernels.preparing import compile_missing, prepare_kernels
from deepinfer_core.errors import ConfigError, DeviceError
from deepinfer_core.interfaces.operators.wanted import WantedKernel
from deepinfer_core.plugin import BuildContext, ComponentSpec, ModelNeeds, Pick, Resolved
from deepinfer_core.telemetry.progress import PhaseStarted, ProgressStream
from deepinfer_core.testing.events import captured_events
from deepinfer_core.testing.tiny import tiny_test_config

Make = Callable[[str], WantedKernel]
SETTINGS = Settings.model_validate({"kernels": {"compile_jobs": 1}})


def resolved(kernels: str, folder: str) -> Resolved:
    spec = ComponentSpec(
        kind="sampler", name="acme.s", slots=("sampler",), contract=1, factory="a:b",
        kernels=kernels,
    )  # fmt: skip
    pick = Pick(kind="sampler", slot="sampler", spec=spec, settings={}, distribution="acme")
    context = BuildContext(device="acme", needs=ModelNeeds(), cache_dir=folder)
    return Resolved(context=context, picks=(pick,), distributions=())


def prepare(
    kernels: str = "a:catalogue", progress: ProgressStream | None = None, folder: str = ""
) -> None:
    stream = progress or ProgressStream()
    prepare_kernels(tiny_test_config(), SETTINGS, resolved(kernels, folder), {}, stream)


@pytest.fixture
def wanting(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def want(*kernels: WantedKernel) -> None:
        monkeypatch.setattr(preparing, "wanted_kernels", lambda *asked: kernels)

    return want


def test_what_the_folder_has_is_found_and_the_rest_compiled(kernel: Make, tmp_path: Path) -> None:
    (tmp_path / "kept" / "a").touch()
    wanted = (kernel("a"), kernel("b"), kernel("wrong"))
    done = compile_missing(wanted, "", 2, ProgressStream())
    assert [one.spec for one in done.found] == ["a"]
    assert [one.kernel.spec for one in done.compiled] == ["b"]
    assert [one.kernel.spec for one in done.failed] == ["wrong"]
    assert done.jobs == 2


def test_where_everything_is_there_nothing_is_started(kernel: Make, tmp_path: Path) -> None:
    (tmp_path / "kept" / "a").touch()
    seen: list[Any] = []
    # Nor is anything written: a folder that was filled elsewhere may be read-only.
    done = compile_missing((kernel("a"),), "/proc/nope", None, ProgressStream(seen.append))
    assert (len(done.found), done.tried, done.jobs, seen) == (1, (), 0, [])


def test_nothing_is_compiled_for_a_folder_that_cannot_be_written(
    kernel: Make, tmp_path: Path, wanting: Callable[..., None]
) -> None:
    wanting(kernel("a"))
    seen: list[Any] = []
    with pytest.raises(ConfigError, match=r"kernels\.cache_dir = /proc/nope, found "):
        prepare(progress=ProgressStream(seen.append), folder="/proc/nope")
    assert (seen, list((tmp_path / "kept").iterdir())) == ([], [])


def test_an_engine_compiles_what_is_missing_before_it_starts(
    kernel: Make, tmp_path: Path, wanting: Callable[..., None]
) -> None:
    wanting(kernel("a"), kernel("b"))
    with captured_events() as logs:
        prepare()
    assert {file.name for file in (tmp_path / "kept").iterdir()} == {"a", "b"}
    (entry,) = logs
    assert (entry["event"], entry["found"], entry["compiled"]) == ("kernels.prepared", 0, 2)


def test_an_engine_whose_kernel_cannot_be_compiled_does_not_start(
    kernel: Make, wanting: Callable[..., None]
) -> None:
    wanting(kernel("wrong"), kernel("a"))
    with captured_events() as logs, pytest.raises(DeviceError) as raised:
        prepare()
    assert "1 failed, among them acme_kernel: " in raised.value.message
    assert "error: this is no kernel" in raised.value.message
    assert "deepinfer kernels compile" in raised.value.hint
    assert [one["event"] for one in logs] == ["kernels.not_compiled", "kernels.prepared"]


def test_components_without_kernels_are_not_rehearsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "wanted_kernels", None)
    with captured_events() as logs:
        prepare(kernels="")
    assert logs == []


def test_a_component_that_cannot_be_rehearsed_is_left_to_the_warm_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*asked: object) -> tuple[WantedKernel, ...]:
        raise ValueError("I need numbers")

    monkeypatch.setattr(preparing, "wanted_kernels", refuse)
    seen: list[Any] = []
    with captured_events() as logs:
        prepare(progress=ProgressStream(seen.append))
    assert not [one for one in seen if isinstance(one, PhaseStarted)]
    assert [(one["event"], one["reason"]) for one in logs] == [
        ("kernels.not_rehearsed", "ValueError: I need numbers")
    ]
