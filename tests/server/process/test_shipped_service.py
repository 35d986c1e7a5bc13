"""``deepinfer serve`` with the shipped checkpoint: clients that go away, and the end."""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from deepinfer_core.testing.answer_ends import ending_of
from deepinfer_core.testing.asked_service import AskedService, grown
from deepinfer_core.testing.crowd import PATHS, Crowd

pytest.importorskip("deepinfer_tiny", reason="nox -s service runs these")
pytest.importorskip("deepinfer_recipe_bridge", reason="nox -s service runs these")
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc"
)

AT_ONCE = 24
ADMITTED = 40
SETTINGS = (
    "server.model_names=tiny", "server.drain_seconds=0.5", "engine.max_num_seqs=8",
    "engine.num_blocks=12", "engine.snapshot_slots=4", "engine.max_model_len=1024",
    "telemetry.level=error",
)  # fmt: skip


@pytest.fixture(scope="module")
def service() -> Iterator[AskedService]:
    with AskedService(SETTINGS) as found:
        yield found


def test_clients_that_go_away_leave_nothing(service: AskedService) -> None:
    # Nobody has asked yet: what connections hold for a moment behind their end is not counted.
    before = service.state()
    crowd = Crowd(service.port, random.Random(1))
    asyncio.run(crowd.run(5 * AT_ONCE, AT_ONCE))
    assert not any(service.held().values())
    assert not grown(before, service.state, ("tasks", "files", "engine_files"))
    samples = service.metrics()
    ended = [samples[name] for name in samples if "requests_finished_total" in name]
    assert samples["deepinfer_requests_total"] == sum(ended) > AT_ONCE
    assert samples["deepinfer_http_clients_gone_total"] > AT_ONCE
    assert {path for _, path, _ in crowd.seen} == set(PATHS)
    assert {status for *_, status in crowd.seen} <= {0, 200, 400}


def test_every_admitted_request_ends_whole_or_with_an_error_when_it_is_told_to_stop(
    service: AskedService,
) -> None:
    crowd = Crowd(service.port, random.Random(2))

    async def stopped() -> tuple[Counter[str], list[int]]:
        answers = crowd.admitted([*[2] * 8, *[200] * (ADMITTED - 8)])
        unanswered, in_work = ADMITTED, 0.0
        while in_work < unanswered:
            unanswered = sum(not one.done() for one in answers)
            in_work = await asyncio.to_thread(service.admitted)
        service.process.send_signal(signal.SIGTERM)
        newcomers = [await crowd.newcomer() for _ in range(4)]
        return Counter(
            [ending_of(answer) for _, answer in await asyncio.gather(*answers)]
        ), newcomers

    ends, newcomers = asyncio.run(stopped())
    assert ends.total() == ADMITTED
    assert ends["whole"]
    assert ends["error"]
    assert not ends["cut"]
    assert set(newcomers) <= {0, 503}
    assert service.process.wait(30) == 0
    assert not Path(f"/proc/{service.engine}").exists()
