"""Do keys bind what cached rows depend on, and nothing else?"""

from pathlib import Path

import deepinfer_core.model as room
import pytest
from deepinfer_core.config import load_settings
from deepinfer_core.config.resolution import resolve_components
from deepinfer_core.engine.reuse_settings import reuse_policy
from deepinfer_core.model.config import ModelConfig

CONFIG = ModelConfig.from_file(next(Path(room.__path__[0], "data").glob("*.json")))


def root(*overrides: str, fingerprint: str = "00", layout: bytes = b"a") -> bytes:
    loaded = load_settings(None, ("plugins.autoload=false", *overrides), environ={})
    resolved = resolve_components(loaded).require()
    chain = reuse_policy(CONFIG, loaded.settings, resolved, fingerprint, layout).chain("")
    assert chain is not None
    return chain.root


@pytest.mark.parametrize(
    "overrides",
    [
        ("components.kv_store.use=core.memory",),
        ("components.kv_store.use=core.memory", "components.kv_store.options.capacity_bytes=99"),
        ("engine.max_num_seqs=3", "engine.replay=mask", "engine.recovery=bounded"),
        ("speculation.max_drafts=1",),
        ("components.drafter.use=core.ngram",),
    ],
)
def test_what_changes_no_cached_row_changes_no_key(overrides: tuple[str, ...]) -> None:
    assert root(*overrides) == root()


@pytest.mark.parametrize(
    "overrides",
    [
        ("components.gemm.use=core.reference", "components.gemm.options.weights=stored"),
        ("model.numerics.compute=float32",),
        ("threads=2",),
    ],
)
def test_what_computes_rows_otherwise_changes_all_keys(overrides: tuple[str, ...]) -> None:
    assert root(*overrides) != root()


def test_another_model_and_another_layout_have_other_keys() -> None:
    assert len({root(), root(fingerprint="01"), root(layout=b"b")}) == 3
