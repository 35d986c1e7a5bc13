"""Are the facts of the CPU those of this process, container limits included?"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from deepinfer_core.plugin import cpu_facts as module
from deepinfer_core.plugin.facts import read_facts

GIB = 1 << 30


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two sockets of two cores with two threads each, and no limit."""
    lines = []
    for thread in range(8):
        lines += ["model name : Test CPU", f"physical id : {thread % 2}"]
        lines += [f"core id : {thread // 2 % 2}", "flags : fpu avx2 avx512_bf16 unheard_of", ""]
    (tmp_path / "cpuinfo").write_text("\n".join(lines))
    monkeypatch.setattr(module, "_PROC", tmp_path)
    monkeypatch.setattr(module, "_CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    sizes = {"SC_PHYS_PAGES": 4 * GIB // 4096, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    return tmp_path


@pytest.mark.usefixtures("machine")
def test_cores_threads_memory_and_instruction_sets_are_counted() -> None:
    facts = module.cpu_facts()
    assert (facts["model"], facts["cores"], facts["threads"]) == ("Test CPU", 4, 8)
    assert facts["memory_bytes"] == 4 * GIB
    assert facts["instruction_sets"] == ["avx2", "avx512_bf16"]


@pytest.mark.parametrize(
    ("quota", "threads"),
    [("max 100000", 8), ("50000 100000", 1), ("150000 100000", 2), ("200000 100000", 2), ("", 8)],
)
def test_a_processor_quota_limits_the_threads(machine: Path, quota: str, threads: int) -> None:
    (machine / "cpu.max").write_text(quota + "\n")
    facts = module.cpu_facts()
    assert facts["threads"] == threads
    assert facts["cores"] == min(4, threads)


@pytest.mark.parametrize(("limit", "memory_bytes"), [("max", 4 * GIB), (str(GIB), GIB)])
def test_a_memory_limit_counts(machine: Path, limit: str, memory_bytes: int) -> None:
    (machine / "memory.max").write_text(limit)
    assert module.cpu_facts()["memory_bytes"] == memory_bytes


def test_a_machine_that_tells_nothing_still_has_one_thread(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine / "cpuinfo").unlink()
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    monkeypatch.delattr(os, "sysconf")
    facts = module.cpu_facts()
    assert (facts["threads"], facts["cores"], facts["memory_bytes"]) == (1, 1, 0)


def test_the_program_prints_what_the_host_reads() -> None:
    facts = read_facts("cpu", "deepinfer_core.plugin.cpu_facts", 60.0)
    assert facts.problem == ""
    assert facts.threads >= facts.cores >= 1


def test_the_program_imports_no_torch() -> None:
    code = "import sys, deepinfer_core.plugin.cpu_facts; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
