"""Is the choice of components logged once, with its warnings?"""

from dataclasses import replace

import pytest
from deepinfer_core.config import load_settings, resolve_components
from deepinfer_core.plugin.hooks import HookFailure
from deepinfer_core.telemetry import reports
from structlog.testing import CapturingLogger


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> CapturingLogger:
    logger = CapturingLogger()
    monkeypatch.setattr(reports, "get_logger", lambda name: logger)
    return logger


def test_the_choice_is_one_event_and_each_fallback_a_warning(log: CapturingLogger) -> None:
    overrides = ("plugins.autoload=false", "components.sampler.use=core.reference")
    loaded = load_settings(None, overrides, environ={})
    report = resolve_components(loaded).report
    first, *others = report.slots
    reports.log_components(replace(report, slots=(replace(first, warning="fell back"), *others)))
    chosen, warned = log.calls
    assert (chosen.method_name, chosen.args) == ("info", ("components.resolved",))
    assert chosen.kwargs["picked"]["sampler"] == "core.reference"
    assert (warned.method_name, warned.kwargs["detail"]) == ("warning", "fell back")


def test_an_observer_that_raised_is_a_warning_by_name(log: CapturingLogger) -> None:
    reports.log_hook_failures([HookFailure("acme", "deepinfer_resolved", "KeyError: 'x'")])
    [call] = log.calls
    assert call.kwargs == {
        "plugin": "acme", "hook": "deepinfer_resolved", "reason": "KeyError: 'x'",
    }  # fmt: skip
