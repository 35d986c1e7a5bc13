"""Where a server may listen."""

import socket
from collections.abc import Iterator

import pytest
from deepinfer_core.config.server import ServerSettings
from deepinfer_core.errors import ConfigError
from deepinfer_core.server.listener import address_of, open_listener


def settings(**changes: object) -> ServerSettings:
    return ServerSettings(**{"port": 0, **changes})


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.8.9.10"])
def test_without_keys_this_machine_may_be_served(host: str) -> None:
    with open_listener(settings(host=host), has_keys=False) as listener:
        with socket.create_connection(listener.getsockname()[:2], timeout=5):
            pass
        assert address_of(listener).endswith(f":{listener.getsockname()[1]}")


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_without_keys_nobody_else_is_served(host: str) -> None:
    with pytest.raises(ConfigError, match="no keys are set") as caught:
        open_listener(settings(host=host), has_keys=False)
    assert "server.keys_file" in caught.value.hint


def test_with_keys_everybody_may_be_served() -> None:
    with open_listener(settings(host="0.0.0.0"), has_keys=True) as listener:
        assert address_of(listener).startswith("http://0.0.0.0:")


def test_a_port_in_use_is_named(taken: int) -> None:
    with pytest.raises(ConfigError, match=rf"server\.port {taken} of 127\.0\.0\.1 is in use"):
        open_listener(settings(port=taken), has_keys=False)


@pytest.mark.parametrize("host", ["no such host", "192.0.2.1"])
def test_an_address_that_is_not_there_is_named(host: str) -> None:
    with pytest.raises(ConfigError, match=host):
        open_listener(settings(host=host), has_keys=True)


def test_an_address_of_version_6_is_written_in_brackets() -> None:
    try:
        listener = open_listener(settings(host="::1"), has_keys=False)
    except ConfigError:
        pytest.skip("this machine has no IPv6")
    with listener:
        assert address_of(listener) == f"http://[::1]:{listener.getsockname()[1]}"
