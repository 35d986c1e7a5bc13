"""Are stores called as the places that chose them?"""

from pathlib import Path

from deepinfer_core.config import load_settings, resolve_components
from deepinfer_core.engine.stored.parts import Part, flat, part_labels, parts_of
from deepinfer_core.interfaces.store_report import StoreReport

SETTINGS = """
[plugins]
autoload = false

[components.kv_store]
use = "core.tiered"

[[components.kv_store.options.tiers]]
use = "core.memory"

[[components.kv_store.options.tiers]]
use = "core.erasure"
options = { data = 1, parity = 1, children = [{ use = "core.memory" }, { use = "core.memory" }] }
"""


def test_parts_are_the_store_and_all_that_it_consists_of(tmp_path: Path) -> None:
    file = tmp_path / "deepinfer.toml"
    file.write_text(SETTINGS)
    resolved = resolve_components(load_settings(file, (), environ={})).require()
    assert parts_of(resolved) == (
        Part("store", "core.tiered"),
        Part("tiers.0", "core.memory"),
        Part("tiers.1", "core.erasure"),
        Part("tiers.1.children.0", "core.memory"),
        Part("tiers.1.children.1", "core.memory"),
    )


def test_no_store_has_no_parts() -> None:
    resolved = resolve_components(load_settings(None, (), environ={})).require()
    assert parts_of(resolved) == ()
    assert all(not labels for labels in part_labels(()).values())


def test_a_report_is_laid_out_flat() -> None:
    leaf = StoreReport(records=3)
    whole = StoreReport(parts={"tiers.1": StoreReport(parts={"children.0": leaf})})
    found = flat(whole)
    assert list(found) == ["store", "tiers.1", "tiers.1.children.0"]
    assert found["tiers.1.children.0"] is leaf
