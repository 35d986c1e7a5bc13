"""Do calls made from the server's own description make it fail, or answer otherwise than it says?

An engine that follows a script answers; all installed protocols are served, by a process of their
own, so that what it keeps shows. ``--record`` writes down how many calls were made and answered.
"""

import contextlib
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from deepinfer_core.testing.asked_service import AskedProcess, grown
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from record import figure
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    status_code_conformance,
)

log = logging.getLogger(__name__)

MODEL = "fake"
WARM_UP = 10
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
]
GROWTH_BOUND_BYTES = 16 << 20
"""A leak of 1 KB a call would be 20 MB in 20,000 calls. What the first call of each operation
compiles and imports is there before: the server is asked behind ``WARM_UP`` calls of each."""


@pytest.fixture(scope="session")
def server() -> Iterator[AskedProcess]:
    """A server that ends well."""
    program = str(Path(__file__).with_name("schema_server.py"))
    with AskedProcess([sys.executable, program]) as found:
        yield found
        assert found.end() == 0


def tried(operation: Any, mode: GenerationMode, examples: int) -> Counter[int]:
    """Call an operation about so often; the statuses of the answers."""
    statuses: Counter[int] = Counter()

    @settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=examples)
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


def tried_all(schema: Any, mode: GenerationMode, examples: int) -> dict[str, Counter[int]]:
    """Call each operation about so often; the statuses of its answers."""
    failures: list[str] = []
    found: dict[str, Counter[int]] = {}
    for result in schema.get_all_operations():
        operation = result.ok()
        try:
            found[operation.label] = tried(operation, mode, examples)
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - all operations are tried
            failures.append(f"{operation.label}: {error}")
        else:
            log.info("%s %s", operation.label, dict(found[operation.label]))
    assert not failures, "\n".join(failures)
    return found


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_call_made_from_the_description_makes_the_server_fail_or_grow(
    server: AskedProcess, mode: GenerationMode, figures: list[dict[str, object]]
) -> None:
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    tried_all(schema, mode, WARM_UP)
    before = server.state()
    found = tried_all(schema, mode, settings.default.max_examples)
    total = sum(found.values(), Counter[int]())
    # Threads of a pool come when they are first needed, and stay; there are no more than it allows.
    assert not grown(before, server.state, ("tasks", "files"))
    after = server.state()
    growth = {name: after[name] - before[name] for name in after}
    log.info("%s: %s calls, %s, %s", mode.value, total.total(), dict(total), growth)
    figures.append(
        figure(
            f"schemas.calls[{mode.value}]", total.total(), "calls", operations=len(found),
            answers={str(status): total[status] for status in sorted(total)},
            growth=growth, growth_bound_bytes=GROWTH_BOUND_BYTES, at_end=after,
        )
    )  # fmt: skip
    assert growth["resident_bytes"] <= GROWTH_BOUND_BYTES
