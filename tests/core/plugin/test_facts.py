"""Does a facts program that fails leave a reason rather than a dead tool?"""

from collections.abc import Callable

import pytest
from deepinfer_core.plugin import DeviceTarget
from deepinfer_core.plugin.facts import read_facts


@pytest.fixture
def program(tmp_path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:  # type: ignore[no-untyped-def]
    # A child does not see changes of this process's import path.
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def write(source: str) -> str:
        (tmp_path / "acme_facts.py").write_text(source)
        return "acme_facts"

    return write


def test_the_facts_are_what_the_program_prints(program: Callable[[str], str]) -> None:
    module = program('print(\'{"device": "x", "capability": [9, 0], "driver": "5"}\')')
    facts = read_facts("acme", module, 30.0)
    assert (facts.device, facts.capability, facts.extra) == ("acme", (9, 0), {"driver": "5"})
    assert facts.problem == ""


def test_without_a_program_nothing_is_known_and_nothing_is_wrong() -> None:
    facts = read_facts("acme", "", 30.0)
    assert (facts.device, facts.count, facts.problem) == ("acme", 0, "")


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import os; os.abort()", "acme_facts ended with -6"),
        ("raise SystemExit('no driver')", "acme_facts ended with 1: no driver"),
        ("print('hello')", "acme_facts gave no facts: JSONDecodeError"),
        ("print('[1]')", "acme_facts gave no facts: TypeError"),
        ('print(\'{"count": "two"}\')', "acme_facts gave no facts: ValueError"),
    ],
)
def test_a_failure_is_recorded_with_its_cause(
    program: Callable[[str], str], source: str, problem: str
) -> None:
    assert problem in read_facts("acme", program(source), 30.0).problem


def test_a_hanging_program_is_stopped(program: Callable[[str], str]) -> None:
    problem = read_facts("acme", program("import time; time.sleep(60)"), 0.3).problem
    assert problem == "acme_facts gave no facts within 0.3 s"


TARGET = DeviceTarget(arch="xy_1", cores=7)
ABSENT = 'import json, sys; print(json.dumps({"model": " ".join(sys.argv[1:]), "is_absent": True}))'


def test_a_device_that_is_not_here_is_described_by_its_architecture(
    program: Callable[[str], str],
) -> None:
    facts = read_facts("acme", program(ABSENT), 30.0, TARGET)
    assert (facts.model, facts.problem) == ("--arch xy_1 --cores 7", "")


def test_facts_of_this_machine_are_not_taken_for_those_of_another(
    program: Callable[[str], str],
) -> None:
    facts = read_facts("acme", program("print('{}')"), 30.0, TARGET)
    assert facts.problem == "the device acme can only be described where it is, not as xy_1"
    assert read_facts("acme", "", 30.0, TARGET).problem == "no program describes xy_1"
