"""Whom may a browser call for?"""

from typing import Any

import pytest
from deepinfer_core.server.origins import Origins
from deepinfer_core.server.refusals import Refused

SITE = "https://app.example"


def lets_in(host: str | None, origin: str | None = None, *allowed: str, keys: bool = False) -> bool:
    headers = {b"host": host, b"origin": origin}
    given = {name: text.encode() for name, text in headers.items() if text is not None}
    try:
        Origins(allowed, "127.0.0.1", checks_host=not keys).check(given)
    except Refused as refused:
        return refused.status != 403
    return True


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8000", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8000"]
)
def test_names_of_this_machine_are_let_in(host: str) -> None:
    assert lets_in(host)


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example",
        "localhost.evil.example",
        "evil.example#localhost",
        "evil.example/localhost",
        "localhost@evil.example",
        "127.0.0.2",
        "[::2]",
        "[",
        ":8000",
    ],
)
def test_without_keys_other_names_are_refused(host: str | None) -> None:
    assert not lets_in(host)
    assert lets_in(host, keys=True)


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]", "[::1]:8000"]
)
@pytest.mark.parametrize("scheme", ["http", "https", "HTTP"])
def test_a_page_of_this_server_may_call(host: str, scheme: str) -> None:
    assert lets_in(host, f"{scheme}://{host}")
    assert lets_in(host, f"{scheme}://{host.lower()}")


OTHERS = [
    "http://localhost",
    "http://localhost:3000",
    "http://127.0.0.1:8000",
    "http://[::1]:8000",
    "ftp://localhost:8000",
    "localhost:8000",
    "http://localhost:8000/",
    "http://a@localhost:8000",
]


@pytest.mark.parametrize("origin", OTHERS)
def test_without_keys_pages_of_other_services_of_this_machine_may_not(origin: str) -> None:
    assert not lets_in("localhost:8000", origin)
    assert lets_in("localhost:8000", origin, origin)
    assert lets_in("localhost:8000", origin, keys=True)


@pytest.mark.parametrize("origin", [SITE, "null", "http://localhost.evil.example", "x"])
def test_without_keys_pages_of_other_origins_may_not_call_unless_they_are_named(
    origin: str,
) -> None:
    assert not lets_in("localhost", origin)
    assert lets_in("localhost", origin, origin)
    assert lets_in("localhost", origin, keys=True)


def test_without_configuration_no_page_may_read_an_answer(run: Any, serve: Any) -> None:
    async def body() -> None:
        async with serve(keys={"a": "key-of-a"}) as client:
            answer = await client.get("/health", headers={"origin": SITE})
            assert answer.status_code == 200
            asked = {"origin": SITE, "access-control-request-method": "POST"}
            preflight = await client.options("/say", headers=asked)
            assert preflight.status_code == 401
            for one in (answer, preflight):
                assert not any(name.startswith("access-control") for name in one.headers)

    run(body)


@pytest.mark.parametrize("allowed", [SITE, "*"])
def test_a_page_that_is_named_may_ask_call_and_read(run: Any, serve: Any, allowed: str) -> None:
    async def body() -> None:
        settings = {"cors_origins": allowed}
        async with serve(settings=settings, keys={"a": "key-of-a"}) as client:
            asked = {
                "origin": SITE,
                "access-control-request-method": "POST",
                "access-control-request-headers": "authorization",
            }
            preflight = await client.options("/say", headers=asked)
            assert preflight.status_code == 204
            assert preflight.headers["access-control-allow-origin"] == SITE
            assert preflight.headers["access-control-allow-headers"] == "authorization"
            headers = {"origin": SITE, "x-api-key": "key-of-a"}
            for answer in (
                await client.post("/say", json={}, headers=headers),
                await client.post("/say", json={}, headers={"origin": SITE}),
            ):
                assert answer.headers["access-control-allow-origin"] == SITE
                assert "x-request-id" in answer.headers["access-control-expose-headers"]
                assert answer.headers["vary"] == "origin"

    run(body)


def test_a_page_that_is_not_named_is_told_nothing(run: Any, serve: Any) -> None:
    async def body() -> None:
        settings = {"cors_origins": SITE}
        async with serve(settings=settings, keys={"a": "key-of-a"}) as client:
            headers = {"origin": "https://evil.example", "x-api-key": "key-of-a"}
            answer = await client.post("/say", json={}, headers=headers)
            assert "access-control-allow-origin" not in answer.headers
            assert answer.headers["vary"] == "origin"

    run(body)


def test_a_rebound_name_does_not_reach_a_keyless_server(run: Any, serve: Any) -> None:
    async def body() -> None:
        async with serve() as client:
            answer = await client.get("/health", headers={"host": "evil.example"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "host_refused")
            plain = await client.post("/say", content=b"{}", headers={"content-type": "text/plain"})
            assert plain.status_code == 415

    run(body)
