"""Does a leak fail the test in which it happens, however the engine ends?"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = """
import gc
import threading
import time
import weakref

import pytest
from deepinfer_core.engine.admission import Rules
from deepinfer_core.engine.batch import Batch
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.pages import PageCounts
from deepinfer_core.engine.prefix_reuse import ReusePolicy
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.schedule.snapshot import Limits
from deepinfer_core.testing.fake_runner import FakeRunner


def make():
    limits = Limits(max_rows=8, max_sequences=2, block_tokens=4, usable_blocks=8)
    batch = Batch(limits, PageCounts(blocks=9, slots=5, snapshots=2), ReusePolicy(block_tokens=4))
    return Engine(FakeRunner(100, 4), batch, Rules(vocabulary=100, max_model_tokens=32))


KEPT = []


def make_and_keep():
    KEPT.append(make())
    return KEPT[-1]


def work(engine, steps=3):
    engine.submit(0, [1, 2, 3, 4, 5], SamplingParams(max_tokens=4, ignore_eos=True))
    for _ in range(steps):
        engine.step()


def leak(engine):
    engine.batch.pages.cache.take(1)


@pytest.fixture(scope="module")
def shared():
    return make()


@pytest.fixture
def closed_later():
    engine = make()
    yield engine
    engine.reset()


def test_clean_running():
    work(make(), 2)


def test_clean_reset_with_work():
    engine = make()
    work(engine, 2)
    engine.reset()


def test_leak_block():
    leak(make())


def test_leak_of_an_engine_that_is_gone():
    leak(make())
    gc.collect()


def test_leak_slot():
    make().batch.pages._slots.take(1)


def test_leak_slot_for_a_copy():
    make_and_keep().batch.pages.cache.reserve_snapshot()


def test_clean_copy_under_way():
    engine = make_and_keep()
    work(engine, 1)
    assert engine.batch.pages.cache.reserved_slots


def test_clean_copy_under_way_of_an_engine_that_is_gone():
    engine = make()
    work(engine, 1)
    assert engine.batch.pages.cache.reserved_slots
    del engine
    gc.collect()


def test_clean_reset_with_a_copy_under_way():
    engine = make_and_keep()
    work(engine, 1)
    engine.reset()


def test_leak_then_reset():
    engine = make()
    leak(engine)
    engine.reset()


def test_leak_before_a_fixture_resets(closed_later):
    leak(closed_later)


def test_leak_in_shared(shared):
    leak(shared)


def test_clean_after_a_leak_in_shared(shared):
    pass


def test_leak_behind_a_failure_shows_the_failure():
    leak(make())
    raise KeyError("its own failure")


def test_clean_afterwards():
    pass


@pytest.mark.breaks_integrity
def test_clean_on_purpose():
    leak(make())


def test_clean_engine_is_not_kept_alive():
    engine = make()
    seen = weakref.ref(engine)
    del engine
    gc.collect()
    assert seen() is None


def test_clean_after_a_moment():
    engine = make()
    [block] = engine.batch.pages.cache.take(1)

    def give_back():
        time.sleep(0.1)
        engine.batch.pages.cache.release([block])

    threading.Thread(target=give_back).start()
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The line of each case in the report of a run of its own."""
    folder: Path = tmp_path_factory.mktemp("cases")
    (folder / "test_cases.py").write_text(CASES)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "-q", "--tb=no", "-p", "no:cacheprovider",
         "-p", "deepinfer_core.testing.integrity", "-c", "/dev/null", "--rootdir", str(folder),
         "test_cases.py"],
        cwd=folder, capture_output=True, text=True, env={**os.environ, "COLUMNS": "300"},
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if "test_cases.py::" in line]
    assert lines, done.stdout + done.stderr
    return {line.split("::")[1].split()[0]: line for line in lines}


def names(beginning: str) -> list[str]:
    found = [line[4:].split("(")[0] for line in CASES.splitlines() if line.startswith("def test_")]
    return [name for name in found if name.startswith(f"test_{beginning}")]


@pytest.mark.parametrize("case", names("leak"))
def test_a_leak_fails_its_test(outcomes: dict[str, str], case: str) -> None:
    assert outcomes[case].startswith("FAILED")


@pytest.mark.parametrize("case", [name for name in names("leak") if "failure" not in name])
def test_the_failure_names_what_is_lost(outcomes: dict[str, str], case: str) -> None:
    assert "an engine lost count" in outcomes[case]


def test_a_failure_of_the_tests_own_comes_first(outcomes: dict[str, str]) -> None:
    assert "its own failure" in outcomes["test_leak_behind_a_failure_shows_the_failure"]


@pytest.mark.parametrize("case", names("clean"))
def test_a_test_without_a_leak_passes(outcomes: dict[str, str], case: str) -> None:
    assert outcomes[case].startswith("PASSED")
