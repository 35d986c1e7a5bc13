"""Do calls made from the server's own description make it fail, or answer otherwise than it says?

An engine that follows a script answers; all installed protocols are served.
"""

import asyncio
import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from deepinfer_core.config import load_settings
from deepinfer_core.config.server import ServerSettings
from deepinfer_core.interfaces.async_engine import GenerateRequest
from deepinfer_core.server.app import App, AppParts
from deepinfer_core.server.protocols import serve_protocols
from deepinfer_core.testing.fake_async_engine import FakeAsyncEngine
from deepinfer_core.testing.served import served
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    status_code_conformance,
)

log = logging.getLogger(__name__)

MODEL = "fake"
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
]


def short_answer(request: GenerateRequest) -> str:
    return "a short answer"


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of a server that runs in a thread."""
    address: list[str] = []
    is_up, is_over = threading.Event(), threading.Event()

    async def main() -> None:
        chosen = ServerSettings()
        engine = FakeAsyncEngine(
            short_answer, grammar_kinds=("json_schema", "json_object", "regex")
        )
        app = App(
            AppParts(
                engine=engine,
                settings=chosen,
                protocols=serve_protocols(load_settings(None, (), environ={})),
                model_names=(MODEL,),
            )
        )
        async with served(app, chosen) as url:
            address.append(url)
            is_up.set()
            await asyncio.to_thread(is_over.wait)
        assert engine.in_work == 0
        app.close()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    is_up.wait()
    yield address[0]
    is_over.set()
    thread.join()


def tried(operation: Any, mode: GenerationMode) -> Counter[int]:
    """Call an operation as often as the profile says; the statuses of the answers."""
    statuses: Counter[int] = Counter()

    @settings(deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        if mode is GenerationMode.POSITIVE and isinstance(case.body, dict) and "model" in case.body:
            case.body["model"] = MODEL  # no description can know its name, and all else needs it
        answer = case.call(timeout=30)
        statuses[answer.status_code] += 1
        case.validate_response(answer, checks=CHECKS)

    # Of a call without parts nothing can be wrong.
    with contextlib.suppress(Unsatisfiable):
        check()
    return statuses


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_call_made_from_the_description_makes_the_server_fail(
    server: str, mode: GenerationMode
) -> None:
    logging.getLogger("deepinfer").setLevel(logging.WARNING)
    schema = schemathesis.openapi.from_url(f"{server}/openapi.json")
    failures: list[str] = []
    total: Counter[int] = Counter()
    for result in schema.get_all_operations():
        operation = result.ok()
        try:
            statuses = tried(operation, mode)
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - all operations are tried
            failures.append(f"{operation.label}: {error}")
        else:
            total += statuses
            log.info("%s %s", operation.label, dict(statuses))
    log.info("%s: %s calls, %s", mode.value, total.total(), dict(total))
    assert not failures, "\n".join(failures)
