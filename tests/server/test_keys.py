"""Who may call a server with keys, and what may be seen without one?"""

from typing import Any

import pytest
from deepinfer_core.interfaces.protocol import Endpoint, HttpAnswer, HttpCall, JsonAnswer
from deepinfer_core.server.dialect import OPENAI

KEYS = {"alice": "alice-key-1", "bob": "schlüssel-2"}


@pytest.mark.parametrize(
    ("headers", "label"),
    [
        ({"authorization": f"Bearer {KEYS['alice']}"}, "alice"),
        ({"authorization": f"bearer   {KEYS['alice']}"}, "alice"),
        ({"x-api-key": KEYS["alice"]}, "alice"),
        ({"authorization": f"Bearer {KEYS['bob']}".encode()}, "bob"),
        ({"authorization": "Bearer wrong", "x-api-key": KEYS["alice"]}, "alice"),
        ({}, None),
        ({"authorization": KEYS["alice"]}, None),
        ({"authorization": f"Basic {KEYS['alice']}"}, None),
        ({"authorization": "Bearer"}, None),
        ({"authorization": f"Bearer {KEYS['alice']}x"}, None),
        ({"authorization": b"Bearer \xff\xfe"}, None),
    ],
)
def test_a_key_opens_the_server_and_nothing_else_does(
    run: Any, serve: Any, headers: dict[str, Any], label: str | None
) -> None:
    async def body() -> None:
        async with serve(keys=KEYS) as client:
            answer = await client.post("/say", json={}, headers=headers)
            if label is None:
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"] == "Bearer"
                assert answer.json()["error"]["code"] == "invalid_api_key"
                assert KEYS["alice"] not in answer.text
            else:
                assert answer.json()["key"] == label

    run(body)


def test_a_protocol_is_not_told_the_key(run: Any, serve: Any) -> None:
    seen: dict[str, str] = {}

    async def handle(call: HttpCall) -> HttpAnswer:
        seen.update(call.headers)
        return JsonAnswer(content=b"{}")

    make = [Endpoint(method="POST", path="/x", handle=handle, dialect=OPENAI)]

    async def body() -> None:
        async with serve(make=lambda service: make, keys=KEYS) as client:
            key = KEYS["alice"]
            headers = {"authorization": f"Bearer {key}", "x-api-key": key, "cookie": f"k={key}"}
            assert (await client.post("/x", json={}, headers=headers)).status_code == 200

    run(body)
    assert "user-agent" in seen
    assert KEYS["alice"] not in str(seen)


@pytest.mark.parametrize("path", ["/metrics", "/progress", "/openapi.json", "/say", "/nothing"])
def test_every_path_but_the_probes_asks_for_a_key(run: Any, serve: Any, path: str) -> None:
    async def body() -> None:
        async with serve(keys=KEYS) as client:
            assert (await client.get(path)).status_code == 401
            assert (await client.get("/health")).status_code == 200
            assert (await client.get("/ready")).status_code == 200

    run(body)


def test_metrics_can_be_opened(run: Any, serve: Any) -> None:
    async def body() -> None:
        async with serve(keys=KEYS, settings={"metrics_auth": False}) as client:
            assert (await client.get("/metrics")).status_code == 200
            assert (await client.get("/progress")).status_code == 401

    run(body)
