"""What may the section about the server say?"""

from pathlib import Path

import pytest
from deepinfer_core.config import load_settings
from deepinfer_core.config.server import ServerSettings
from deepinfer_core.errors import ConfigError


def server(*overrides: str, **environ: str) -> ServerSettings:
    return load_settings(None, overrides, environ=environ).settings.server


def test_without_settings_it_listens_on_this_machine_alone() -> None:
    assert (server().host, server().port, server().keys_file) == ("127.0.0.1", 8000, None)


def test_protocols_are_all_or_at_least_one() -> None:
    assert server().protocols is None
    assert server("server.protocols=core.completions, bridge.chat").protocols == (
        "core.completions",
        "bridge.chat",
    )
    with pytest.raises(ConfigError, match="expected at least one protocol"):
        server("server.protocols=[]")


@pytest.mark.parametrize("way", ["file", "set", "environment"])
def test_options_of_a_protocol_are_found_by_its_name(way: str, tmp_path: Path) -> None:
    if way == "file":
        file = tmp_path / "a.toml"
        file.write_text("[server.protocol_options.bridge.chat]\ncompat = false\n")
        found = load_settings(file, (), environ={}).settings.server
    elif way == "set":
        found = server("server.protocol_options.bridge.chat.compat=false")
    else:
        found = server(DEEPINFER_SERVER__PROTOCOL_OPTIONS__BRIDGE__CHAT__COMPAT="false")
    assert found.options_of("bridge.chat") == {"compat": False}
    assert found.options_of("bridge.other") == {}
    assert found.options_of("core.chat") == {}


def test_a_protocol_in_quotes_gets_the_unquoted_spelling(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text('[server.protocol_options."bridge.chat"]\ncompat = false\n')
    with pytest.raises(ConfigError, match=r"write \[server.protocol_options.VENDOR.NAME\]"):
        load_settings(file, (), environ={})


@pytest.mark.parametrize("path", ["bridge=1", "bridge.chat=1"])
def test_options_that_are_no_tables_are_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="has no table of"):
        server(f"server.protocol_options.{path}")


@pytest.mark.parametrize("origin", ["https://a.example", "http://localhost:3000", "*"])
def test_an_origin_may_call(origin: str) -> None:
    assert server(f"server.cors_origins={origin}").cors_origins == (origin,)


@pytest.mark.parametrize("origin", ["a.example", "https://a.example/path", "null", "ftp://a"])
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(ConfigError, match="is no origin"):
        server(f"server.cors_origins={origin}")


@pytest.mark.parametrize("port", ["-1", "65536", "true"])
def test_what_is_no_port_is_refused(port: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.port"):
        server(f"server.port={port}")


def test_a_key_gives_its_requests_a_class_of_traffic() -> None:
    found = server("server.key_retention=alice:chat, bob:agent")
    assert [found.retention_of(label) for label in ("alice", "bob", "carol", "")] == [
        "chat",
        "agent",
        None,
        None,
    ]


@pytest.mark.parametrize("pairs", ["alice", ":chat", "alice:Chat", "alice:chat,alice:agent"])
def test_a_pair_without_a_label_or_a_class_is_refused(pairs: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.key_retention"):
        server(f"server.key_retention={pairs}")
