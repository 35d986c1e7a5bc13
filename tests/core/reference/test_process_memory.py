"""Do container limits count, in both hierarchies of control groups and at every level?"""

from pathlib import Path

import pytest
from deepinfer_core.reference.process_memory import process_memory

TOTAL, AVAILABLE = 16 * 1024**3, 8 * 1024**3
UNLIMITED = 9223372036854771712


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine without limits."""
    write(
        tmp_path,
        "proc/meminfo",
        f"MemTotal: {TOTAL >> 10} kB\nMemAvailable: {AVAILABLE >> 10} kB\n",
    )
    write(tmp_path, "proc/self/cgroup", "0::/\n")
    return tmp_path


def write(root: Path, name: str, text: object) -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(str(text))


def numbers(root: Path) -> tuple[int, int]:
    memory = process_memory(root)
    return memory.total_bytes, memory.free_bytes


def test_without_limits_the_machine_counts(root: Path):
    assert numbers(root) == (TOTAL, AVAILABLE)


def test_a_group_without_a_number_sets_no_limit(root: Path):
    write(root, "sys/fs/cgroup/memory.max", "max\n")
    write(root, "sys/fs/cgroup/memory.current", 5)
    assert numbers(root) == (TOTAL, AVAILABLE)


def test_a_limit_below_the_machine_counts(root: Path):
    write(root, "sys/fs/cgroup/memory.max", 1000)
    write(root, "sys/fs/cgroup/memory.current", 300)
    assert numbers(root) == (1000, 700)


def test_pages_of_cached_files_are_free(root: Path):
    write(root, "sys/fs/cgroup/memory.max", 1000)
    write(root, "sys/fs/cgroup/memory.current", 300)
    write(root, "sys/fs/cgroup/memory.stat", "anon 100\ninactive_file 150\n")
    assert numbers(root) == (1000, 850)


def test_a_group_beyond_its_limit_has_nothing_free(root: Path):
    write(root, "sys/fs/cgroup/memory.max", 1000)
    write(root, "sys/fs/cgroup/memory.current", 1001)
    assert numbers(root) == (1000, 0)


@pytest.mark.parametrize("level", ["", "outer/", "outer/inner/"])
def test_the_limit_of_every_group_around_the_process_counts(root: Path, level: str):
    write(root, "proc/self/cgroup", "0::/outer/inner\n")
    write(root, f"sys/fs/cgroup/{level}memory.max", 1000)
    assert numbers(root) == (1000, 1000)


def test_the_limit_of_a_group_elsewhere_does_not_count(root: Path):
    write(root, "proc/self/cgroup", "0::/outer\n")
    write(root, "sys/fs/cgroup/outer/inner/memory.max", 1000)
    write(root, "sys/fs/memory.max", 1000)
    assert numbers(root) == (TOTAL, AVAILABLE)


def test_the_older_hierarchy_counts_where_memory_is_one_of_its_controllers(root: Path):
    write(root, "proc/self/cgroup", "5:devices:/a\n4:memory:/job\n0::/\n")
    write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", UNLIMITED)
    write(root, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", 1000)
    write(root, "sys/fs/cgroup/memory/job/memory.usage_in_bytes", 400)
    write(root, "sys/fs/cgroup/memory/job/memory.stat", "total_inactive_file 100\n")
    assert numbers(root) == (1000, 700)


def test_a_system_without_such_files_asks_the_system_library(tmp_path: Path):
    total, free = numbers(tmp_path)
    assert 0 < free <= total
