"""Which protocols are served?"""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deepinfer_core.config import load_settings
from deepinfer_core.errors import ConfigError, DeepInferError, NoUsableComponent, PluginFailed
from deepinfer_core.server import protocols
from deepinfer_core.server.protocols import ServedProtocol, serve_protocols

PLUGIN = """
from deepinfer_core.plugin import ComponentSpec, Verdict, hookimpl

def never(context):
    return Verdict(False, reason="its codec is missing", fix="install the codec")

@hookimpl
def deepinfer_components():
    common = {"kind": "protocol", "slots": ("protocol",), "contract": 1}
    for name, more in {
        "plain": {"factory": "acme_parts:Plain", "options": "acme_parts:Options"},
        "other": {"factory": "acme_parts:Plain"},
        "never": {"factory": "acme_parts:Plain", "probe": "acme_module:never"},
        "future": {"factory": "acme_parts:Plain", "contract": 2},
        "broken": {"factory": "acme_parts:broken"},
        "strange": {"factory": "acme_parts:Options"},
    }.items():
        yield ComponentSpec(name=f"acme.{name}", **(common | more))
"""

PARTS = """
from pydantic import BaseModel
from deepinfer_core.interfaces.protocol import Protocol

class Options(BaseModel):
    compat: bool = True
    def __init__(self, options=None, context=None, **fields):
        super().__init__(**fields)

class Plain(Protocol):
    def __init__(self, options, context):
        self.options, self.context = options, context
    def endpoints(self, service):
        return ()

def broken(options, context):
    raise KeyError("oops")
"""

WORKING = "server.protocols=acme.plain,acme.other"
OPTIONS = "server.protocol_options.acme"


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution with protocols, found like any other."""
    info = tmp_path / "acme_dist-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-dist\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[deepinfer.plugins.v1]\nacme = acme_module\n")
    (tmp_path / "acme_module.py").write_text(PLUGIN)
    (tmp_path / "acme_parts.py").write_text(PARTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    yield
    for name in ("acme_module", "acme_parts"):
        sys.modules.pop(name, None)


def served(*overrides: str) -> dict[str, ServedProtocol]:
    only = ("plugins.autoload=false", "plugins.require=acme")
    loaded = load_settings(None, (*only, *overrides), environ={})
    return {one.name: one for one in serve_protocols(loaded)}


def problem(*overrides: str) -> DeepInferError:
    with pytest.raises(DeepInferError) as caught:
        served(*overrides)
    return caught.value


pytestmark = pytest.mark.usefixtures("acme")


def test_those_that_are_named_are_built_with_their_options() -> None:
    found = served(WORKING, f"{OPTIONS}.plain.compat=false")
    assert list(found) == ["acme.plain", "acme.other"]
    plain, other = (one.protocol for one in found.values())
    assert plain.options.compat is False  # type: ignore[attr-defined]
    assert other.options is None  # type: ignore[attr-defined]
    assert plain.context.device == "cpu"  # type: ignore[attr-defined]
    assert found["acme.plain"].options == {"compat": False}
    assert found["acme.plain"].distribution == "acme-dist"


def test_without_names_all_that_can_work_are_tried() -> None:
    # The one that breaks while it is built breaks the start; it is not left out in silence.
    error = problem()
    assert isinstance(error, PluginFailed)
    assert "protocol acme.broken of acme-dist could not be built: KeyError" in error.message


@pytest.mark.parametrize(
    ("name", "kind", "message", "hint"),
    [
        ("acme.never", NoUsableComponent, "its codec is missing", "install the codec"),
        ("acme.future", NoUsableComponent, "speaks revision 2 of protocol", "made for this core"),
        ("acme.plane", NoUsableComponent, "which no loaded plugin offers", "mean acme.plain?"),
        ("bridge.chat", NoUsableComponent, "no loaded plugin", "install deepinfer-recipe-bridge"),
        ("acme.strange", PluginFailed, "needs a Protocol", "authors of acme-dist"),
    ],
)
def test_one_that_is_named_and_cannot_be_served_is_refused_with_the_reason(
    name: str, kind: type[DeepInferError], message: str, hint: str
) -> None:
    error = problem(f"server.protocols={name}")
    assert isinstance(error, kind)
    assert message in error.message
    assert hint in error.hint


def test_nobody_is_told_to_install_what_is_installed() -> None:
    there: Any = SimpleNamespace(spec=SimpleNamespace(name="bridge.chat"), usable=True)
    with pytest.raises(NoUsableComponent) as found:
        protocols._named("bridge.chatt", [there])
    assert found.value.hint == "did you mean bridge.chat? protocols here: bridge.chat"


def test_a_wrong_option_names_its_key_and_its_origin() -> None:
    error = problem(WORKING, f"{OPTIONS}.plain.compat=perhaps")
    assert isinstance(error, ConfigError)
    assert f"{OPTIONS}.plain.compat = 'perhaps'" in error.message
    assert f"from --set {OPTIONS}.plain.compat" in error.message


def test_an_unknown_option_gets_the_nearest() -> None:
    error = problem(WORKING, f"{OPTIONS}.plain.compta=true")
    assert f"acme.plain has no option {OPTIONS}.plain.compta" in error.message
    assert error.hint == "did you mean compat?"


def test_options_of_one_that_takes_none_are_refused() -> None:
    assert "takes no options, found size" in problem(WORKING, f"{OPTIONS}.other.size=1").message


def test_options_of_one_that_is_not_served_are_refused() -> None:
    error = problem(WORKING, f"{OPTIONS}.never.size=1")
    assert error.message == f"{OPTIONS}.never is set, but that is not served"
    assert error.hint == "served: acme.other, acme.plain"


def test_a_plugin_that_is_required_and_missing_is_named() -> None:
    assert "names nobody" in problem("plugins.require=nobody").message


def test_nothing_to_serve_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepinfer_core.server.protocols.host_candidates", lambda *arguments: [])
    with pytest.raises(NoUsableComponent, match="no plugin offers one"):
        served()
