"""Does a wrong option of a store say what was asked, what was found and what to do?"""

from typing import Any

import pytest
from deepinfer_core.config import load_settings
from deepinfer_core.config.resolution import resolve_components
from deepinfer_core.errors import ConfigError, DeepInferError

KEY = "components.kv_store.options"
MEMORY: dict[str, Any] = {"use": "core.memory"}
ERASURE: dict[str, Any] = {"data": 1, "parity": 1, "children": [MEMORY, MEMORY]}
PEERS: dict[str, Any] = {"name": "127.0.0.1:7001", "members": ["127.0.0.1:7001"]}
DISK: dict[str, Any] = {"folder": "/nowhere"}
TIERS: dict[str, Any] = {"tiers": [MEMORY, MEMORY]}

RAW = ("Input", "should", "Tuple", "String", "after validation", "pattern", "ctx", "pydantic")
"""Words of the library that checks values."""


def problem(use: str, options: dict[str, Any]) -> DeepInferError:
    """What is wrong with a store, as the verbs say it."""
    value = {"use": use, "options": options}
    try:
        chosen = ("plugins.autoload=false", f"components.kv_store={literal(value)}")
        loaded = load_settings(None, chosen, environ={})
        found = resolve_components(loaded)
    except DeepInferError as error:
        return error
    (only,) = found.report.problems
    assert isinstance(only, DeepInferError)
    return only


def literal(value: object) -> str:
    """A value as a command line has it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {literal(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(literal, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


@pytest.mark.parametrize(
    ("use", "options", "parts"),
    [
        ("core.tiered", {"tiers": [MEMORY]}, ("two tiers or more, found 1", "name core.memory")),
        ("core.tiered", {"tiers": []}, ("two tiers or more, found none", "list stores")),
        ("core.tiered", {"tiers": [MEMORY] * 9}, ("a list of 8 or fewer, found 9",)),
        ("core.tiered", {"tiers": 3}, (f"{KEY}.tiers = 3", "expected a list")),
        ("core.tiered", {"tiers": ["a", "b"]}, (f"{KEY}.tiers.0 = 'a'", "a table of keys")),
        ("core.tiered", {}, (f"core.tiered needs {KEY}.tiers",)),
        ("core.tiered", {**TIERS, "pending_bytes": 0}, ("expected 1 or more",)),
        ("core.tiered", {**TIERS, "close_s": -1}, ("expected 0 or more",)),
        ("core.erasure", {"children": [MEMORY]}, ("need 12 children, found 1", "list so many")),
        ("core.erasure", {**ERASURE, "spare": 2}, ("spare is at most parity, 1, found 2",)),
        ("core.erasure", {**ERASURE, "codec": "zfec"}, ("'zfec'", "expected 'isal' or 'numpy'")),
        ("core.erasure", {**ERASURE, "hung_s": 0}, ("expected more than 0",)),
        ("core.memory", {"capacity_bytes": "4GiB"}, ("'4GiB'", "expected a whole number")),
        ("core.memory", {"capacity_bytes": 1.5}, ("expected a whole number",)),
        ("core.memory", {"high_ratio": 1.5}, ("expected 1 or less",)),
        ("core.memory", {"low_ratio": 0.95}, ("low_ratio is 0.95, above high_ratio 0.9",)),
        ("core.memory", {"retention_s": 5}, ("expected a table of keys",)),
        ("core.memory", {"retention_s": {"chat": "long"}}, ("expected a number",)),
        ("core.memory", {"retention_s": {"Agent": 5}}, ("a class is a word", "'Agent'")),
        ("core.disk", {**DISK, "writes": "maybe"}, ("'maybe'", "expected true or false")),
        ("core.disk", {"folder": ""}, ("expected text with a length of 1 or more",)),
        ("core.disk", {"folder": 3}, ("expected text",)),
        ("core.disk", {}, (f"core.disk needs {KEY}.folder",)),
        ("core.peers", {**PEERS, "members": "x"}, ("expected a list",)),
        ("core.peers", {**PEERS, "members": []}, ("a list of 1 or more, found 0",)),
        ("core.peers", {**PEERS, "call_s": 0}, ("expected more than 0",)),
    ],
)
def test_a_wrong_value_is_explained_in_plain_words(
    use: str, options: dict[str, Any], parts: tuple[str, ...]
) -> None:
    found = problem(use, options)
    for part in parts:
        assert part in f"{found.message} {found.hint}"
    assert KEY in found.message
    assert not [word for word in RAW if word in found.message]


def test_values_that_do_not_fit_together_are_not_repeated_as_a_table() -> None:
    found = problem("core.erasure", {**ERASURE, "spare": 2})
    assert "children'" not in found.message


@pytest.mark.parametrize(
    ("use", "options", "key", "hint"),
    [
        ("core.tiered", {"tiers": [{"usee": "core.memory"}, MEMORY]}, "tiers.0.usee", "use?"),
        ("core.tiered", {**TIERS, "tires": 1}, "tires", "tiers?"),
        ("core.erasure", {**ERASURE, "children": [{**MEMORY, "grups": 1}, MEMORY]},
         "children.0.grups", "options: options, use"),
        ("core.tiered", {"tiers": [{**MEMORY, "options": {"capacity": 1}}, MEMORY]},
         "tiers.0.options.capacity", "capacity_bytes?"),
    ],
)  # fmt: skip
def test_a_misspelt_key_gets_the_names_of_its_own_table(
    use: str, options: dict[str, Any], key: str, hint: str
) -> None:
    found = problem(use, options)
    assert f"has no option {KEY}.{key} " in found.message
    assert hint in found.hint


def test_what_an_entry_of_a_list_lacks_is_written_into_that_entry() -> None:
    found = problem("core.tiered", {"tiers": [MEMORY, {"use": "core.disk"}]})
    assert f"core.disk needs {KEY}.tiers.1.options.folder" in found.message
    assert found.hint == "write folder into that entry of the configuration file"


def test_one_entry_of_a_list_cannot_be_set_alone() -> None:
    whole = f"{KEY}.tiers={literal([MEMORY, MEMORY])}"
    with pytest.raises(ConfigError, match=r"tiers, which is a list \(from --set") as caught:
        load_settings(None, (whole, f"{KEY}.tiers.0.use=core.disk"), environ={})
    assert f"--set '{KEY}.tiers=[...]'" in caught.value.hint
