"""An engine over the fake runner, and a tokenizer with one token a byte."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.engine.admission import Rules
from deepinfer_core.engine.batch import Batch
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.pages import PageCounts
from deepinfer_core.engine.prefix_reuse import ReusePolicy
from deepinfer_core.engine.tokenizer import Tokenizer, open_tokenizer
from deepinfer_core.schedule.snapshot import Limits
from deepinfer_core.testing.fakes import FakeRunner, byte_tokenizer_source

BLOCK = 4

MakeEngine = Callable[..., Engine]


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    (folder / "tokenizer.json").write_text(byte_tokenizer_source(), encoding="utf-8")
    opened = open_tokenizer(folder)
    assert opened is not None
    return opened


@pytest.fixture
def make_engine(tokenizer: Tokenizer) -> MakeEngine:
    """Build an engine with a fake runner and small sizes."""

    def build(
        rows: int = 16, sequences: int = 4, blocks: int = 64, longest: int = 64, **options: Any
    ) -> Engine:
        runner = options.pop("runner", None) or FakeRunner(265, BLOCK)
        seed = options.pop("seed", None)
        snapshots = options.pop("snapshots", 4)
        asynchronous = options.pop("asynchronous", True)
        policy = ReusePolicy(block_tokens=BLOCK, window_tokens=BLOCK, layers=2)
        policy = options.pop("policy", policy)
        limits = Limits(
            max_rows=rows, max_sequences=sequences, block_tokens=BLOCK, usable_blocks=blocks
        )
        rules = Rules(vocabulary=265, max_model_tokens=longest, **options)
        counts = PageCounts(blocks=blocks + 1, slots=sequences + 1 + snapshots, snapshots=snapshots)
        batch = Batch(limits, counts, policy)
        return Engine(runner, batch, rules, tokenizer, seed=seed, is_asynchronous=asynchronous)

    return build
