"""Which checks of a public compliance runner pass, and which do not, for which reason?"""

import json
import re
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import pytest
from record import figure

pytestmark = pytest.mark.skipif(
    find_spec("llm_comply") is None, reason="needs llm-comply: nox -s clients"
)

REFUSED = {
    "openai-chat": {"chat-tool-calling", "chat-image-input"},
    "open-responses": {"tool-calling", "image-input"},
    "anthropic": {"anth-image-input"},
}
"""Checks whose requests are refused; docs/protocols.md says why."""

FIELDS: dict[str, tuple[str, ...]] = {
    "openai-chat": (),
    "open-responses": (r"unknown SSE event type: response\.reasoning_text\.(delta|done)",),
    "anthropic": (),
}
"""Where a published schema and the official SDK differ."""

EXPLAINED = 'docs/protocols.md, "Deviations from the public interfaces"'


def counted(form: str, results: list[dict[str, Any]]) -> dict[str, object]:
    """What the runner said, in few words."""
    by_status: dict[str, list[str]] = {"passed": [], "failed": [], "skipped": []}
    for one in results:
        by_status[one["status"]].append(one["id"])
    return figure(
        f"clients.llm_comply[{form}]", len(by_status["passed"]), "checks passed",
        failed=by_status["failed"], explained_in=EXPLAINED, skipped=by_status["skipped"],
        warned=[one["id"] for one in results if one.get("warnings")],
        version=version("llm-comply"),
    )  # fmt: skip


@pytest.mark.parametrize("form", REFUSED)
def test_only_explained_checks_fail(
    scripted_service: str, form: str, figures: list[dict[str, object]]
) -> None:
    command = [sys.executable, "-m", "llm_comply.cli", "run", "--format", form, "--json"]
    address = ["-u", f"{scripted_service}/v1", "-m", "tiny", "-k", "none"]
    done = subprocess.run([*command, *address], capture_output=True, text=True, timeout=120)
    results = json.loads(done.stdout)["results"]
    figures.append(counted(form, results))
    failed = {one["id"]: one["errors"] for one in results if one["status"] == "failed"}
    assert failed.keys() >= REFUSED[form], "a check passes that is said to be refused"
    errors = [text for name in failed.keys() - REFUSED[form] for text in failed[name]]
    unexplained = [text for text in errors if not any(re.search(p, text) for p in FIELDS[form])]
    assert not unexplained
    unneeded = [p for p in FIELDS[form] if not any(re.search(p, text) for text in errors)]
    assert not unneeded, "an explanation explains nothing"
