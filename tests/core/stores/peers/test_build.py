"""Is a pool that would be open to strangers, or that cannot be one, refused with what to do?"""

from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.config.store_options import PeersStoreOptions
from deepinfer_core.errors import ConfigError
from deepinfer_core.stores.peers.build import build


def built(**options: Any) -> None:
    context: Any = None  # nothing of it is used
    build(PeersStoreOptions(**options), context)


def test_members_on_one_machine_need_no_secret() -> None:
    built(name="127.0.0.1:1", members=["127.0.0.1:1", "[::1]:2", "localhost:3"])


@pytest.mark.parametrize("name", ["10.0.0.1:7000", "one.example:7000", "0.0.0.0:7000"])
def test_machines_without_a_secret_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name) as refused:
        built(name=name, members=[name])
    assert "secret_file" in str(refused.value.hint)


def test_listening_to_everybody_without_a_secret_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0:1"):
        built(name="127.0.0.1:1", members=["127.0.0.1:1"], listen="0.0.0.0:1")


def test_a_member_that_is_not_among_them_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:2"):
        built(name="127.0.0.1:2", members=["127.0.0.1:1"])


@pytest.mark.parametrize("name", ["host", "host:", ":1", "host:0", "host:65536", "::1:5", "h:1 "])
def test_what_is_no_address_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        built(name=name, members=[name])


def test_a_secret_is_read_from_its_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    names = {"name": "10.0.0.1:7000", "members": ["10.0.0.1:7000"], "secret_file": str(secret)}
    with pytest.raises(ConfigError, match="No such file"):
        built(**names)
    secret.write_text("too short\n")
    with pytest.raises(ConfigError, match="9 bytes"):
        built(**names)
    secret.write_text("sixteen bytes at least\n")
    built(**names)
