"""Are addresses and answers that no service gives told as such?"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from deepinfer_core.cli.parser import UsageError
from deepinfer_core.cli.service_call import metrics_of
from deepinfer_core.errors import EngineError


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:1", "ftp://a", "http://", "http://a:abc", "http://[::1", "http://a b"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="--url is"):
        metrics_of(url, "")


@pytest.fixture
def nonsense() -> Iterator[str]:
    """Address of somebody who answers a call with something else."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            caller, _ = server.accept()
            with caller:
                caller.recv(1 << 16)
                caller.sendall(b"\x00\x01 no HTTP\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_an_answer_that_is_no_http_is_told(nonsense: str) -> None:
    with pytest.raises(EngineError, match="was asked for metrics"):
        metrics_of(nonsense, "")
