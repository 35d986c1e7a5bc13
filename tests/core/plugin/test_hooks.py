"""Does one observer's failure stay its own?"""

from types import SimpleNamespace
from typing import Any

import pluggy
import pytest
from deepinfer_core.plugin import VerbSpec, hookimpl
from deepinfer_core.plugin.hooks import engine_started, new_manager, request_finished, verbs_of


class Observer:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    @hookimpl
    def deepinfer_engine_started(self, info: Any) -> None:
        self.seen.append(info)

    @hookimpl
    def deepinfer_request_finished(self) -> None:
        self.seen.append("finished")


class Broken:
    @hookimpl
    def deepinfer_engine_started(self, info: Any) -> None:
        raise SystemExit(9)


@pytest.fixture
def manager() -> pluggy.PluginManager:
    return new_manager()


@pytest.mark.parametrize("order", [("broken", "fine"), ("fine", "broken")])
def test_observers_around_a_broken_one_are_still_told(
    manager: pluggy.PluginManager, order: tuple[str, str]
) -> None:
    observer = Observer()
    for name in order:
        manager.register(observer if name == "fine" else Broken(), name=name)
    [failure] = engine_started(manager, {"device": "cpu"})
    assert observer.seen == [{"device": "cpu"}]
    assert (failure.plugin, failure.hook) == ("broken", "deepinfer_engine_started")
    assert failure.reason == "SystemExit: 9"


def test_an_observer_may_leave_out_arguments(manager: pluggy.PluginManager) -> None:
    observer = Observer()
    manager.register(observer)
    assert request_finished(manager, {}) == []
    assert observer.seen == ["finished"]


def test_verbs_are_those_of_the_plugin_that_was_asked(manager: pluggy.PluginManager) -> None:
    for name in ("one", "two"):
        verb = VerbSpec(name=name, summary="", module="acme.cli")
        manager.register(
            SimpleNamespace(deepinfer_cli_verbs=hookimpl(lambda verb=verb: [verb])), name=name
        )
    assert [verb.name for verb in verbs_of(manager, "two")] == ["two"]
