"""Do the pages about the configuration say what the schema says?"""

import inspect
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from deepinfer_core.config import load_settings, resolve_components
from deepinfer_core.config.components import ComponentsSettings, Section, SlotSettings
from deepinfer_core.config.settings import Settings

DOCS = Path(__file__).parents[3] / "docs"


def meanings(section: type[Section]) -> dict[str, str]:
    """What the docstring says about each attribute, on one line."""
    text = inspect.cleandoc(section.__doc__ or "").partition("Attributes:\n")[2]
    entries = re.split(r"\n {4}(?=\w+: )", "\n" + text)[1:]
    pairs = (" ".join(entry.split()).partition(": ") for entry in entries)
    return {name: meaning.replace("``", "`") for name, _, meaning in pairs}


def default_text(value: object) -> str:
    return "none" if value is None else json.dumps(value)


def rows(section: type[Section], path: str = "") -> Iterator[str]:
    """Rows of the table, in the order of the schema."""
    said = meanings(section)
    for name, field in section.model_fields.items():
        default = field.get_default(call_default_factory=True)
        if isinstance(default, ComponentsSettings):
            yield from rows(SlotSettings, "components.KIND.")
        elif isinstance(default, Section):
            yield from rows(type(default), f"{path}{name}.")
        else:
            yield f"| `{path}{name}` | `{default_text(default)}` | {said[name]} |"


def test_the_table_has_every_setting_with_its_default_and_meaning() -> None:
    page = (DOCS / "configuration.md").read_text()
    table = page.partition("## All settings")[2].partition("\n## ")[0]
    listed = [line for line in table.splitlines() if line.startswith("| `")]
    assert listed == list(rows(Settings))
    assert "| `engine.max_num_seqs` | `16` | sequences that run at once. |" in listed


@pytest.mark.parametrize("form", ["toml", "set"])
def test_the_reference_set_of_the_page_about_the_cpu_needs_no_kernels(form: str) -> None:
    page = (DOCS / "cpu.md").read_text().partition("Everything on the reference")[2]
    if form == "toml":
        kinds = tomllib.loads(re.findall(r"```toml\n(.*?)```", page, re.DOTALL)[0])["components"]
        wishes = tuple(f"components.{kind}.use={value['use']}" for kind, value in kinds.items())
    else:
        wishes = tuple(re.findall(r"--set (\S+)", page))
    found = resolve_components(load_settings(None, ("plugins.autoload=false", *wishes), environ={}))
    picked = {pick.spec.name for pick in found.require().picks if pick.kind != "device"}
    assert picked == {"core.reference", "core.local"}
