"""Is every protocol described so that the server finds, checks and builds it?"""

import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest
from deepinfer_core.interfaces.protocol import Protocol
from deepinfer_core.plugin import BuildContext, ComponentSpec
from deepinfer_recipe_bridge.messages import Messages
from deepinfer_recipe_bridge.options import MessagesOptions
from deepinfer_recipe_bridge.plugin import deepinfer_components
from pydantic import ValidationError
from scripted import ScriptedEngine, view_of

SPECS = list(deepinfer_components())


def loaded(reference: str) -> Any:
    module, name = reference.split(":")
    return getattr(import_module(module), name)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_factory_and_options_fit_each_other(spec: ComponentSpec) -> None:
    options = loaded(spec.options)
    protocol = loaded(spec.factory)(options(), BuildContext.__new__(BuildContext))
    assert isinstance(protocol, Protocol)
    assert protocol.endpoints(view_of(ScriptedEngine()))
    with pytest.raises(ValidationError):
        options(tool_gramar="off")


def test_no_two_endpoints_share_a_path() -> None:
    paths = [
        (endpoint.method, path)
        for spec in SPECS
        for endpoint in loaded(spec.factory)(
            loaded(spec.options)(), BuildContext.__new__(BuildContext)
        ).endpoints(view_of(ScriptedEngine()))
        for path in (endpoint.path, *endpoint.aliases)
    ]
    assert len(paths) == len(set(paths))
    assert {"/v1/chat/completions", "/v1/responses", "/v1/messages"} <= {path for _, path in paths}


def test_the_description_imports_little() -> None:
    code = (
        "import sys, deepinfer_recipe_bridge.plugin;"
        "print([m for m in ('torch', 'pydantic', 'deepseek_recipe') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_protocols_need_no_torch() -> None:
    code = (
        "import sys, deepinfer_recipe_bridge.chat, deepinfer_recipe_bridge.responses,"
        "deepinfer_recipe_bridge.messages;"
        "print([m for m in ('torch', 'starlette') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_only_counting_tokens_counts_for_no_key() -> None:
    endpoints = Messages(MessagesOptions()).endpoints(view_of(ScriptedEngine()))
    found = {endpoint.path: endpoint.counts for endpoint in endpoints}
    assert found == {"/v1/messages": True, "/v1/messages/count_tokens": False}
