"""Does the NVIDIA indexer keep its contract, on interpreted kernels?"""

from typing import ClassVar

import pytest
import torch
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.attention import Indexer, IndexerSpec
from deepinfer_core.testing.contracts.indexer import IndexerContract
from deepinfer_core.testing.tiles import InterpretedKernels
from deepinfer_nvidia.attention.tilelang import TileLangAttention
from deepinfer_nvidia.kernels.attention_select_top import MOST_ENTRIES

KERNELS = InterpretedKernels()


class TestTileLangIndexer(IndexerContract):
    """The contract, without fp64, which no kernel knows."""

    compute_dtypes: ClassVar[tuple[str, ...]] = ("bfloat16", "float32")
    index_formats: ClassVar[tuple[str, ...]] = ("mxfp4", "bfloat16")

    @pytest.fixture
    def component(self) -> Indexer:
        """One object for all slots of attention."""
        return TileLangAttention(KERNELS)

    def test_a_score_depends_neither_on_its_batch_nor_on_the_reach_of_others(
        self, component: Indexer, index_format: str, compute: str, generator: torch.Generator
    ) -> None:
        """A thread an entry adds up alone; only tiles could mix rows."""
        if (index_format, compute) != ("mxfp4", "bfloat16"):
            pytest.skip("takes a minute interpreted; devices run it")
        super().test_a_score_depends_neither_on_its_batch_nor_on_the_reach_of_others(
            component, index_format, compute, generator
        )


def test_sizes_without_a_choice_are_refused() -> None:
    """Nothing to keep, or blocks without entries."""
    good = {"heads": 1, "width": 32, "top_entries": 1, "block_entries": 1, "top_blocks": 1}
    component = TileLangAttention(KERNELS)
    component.plan_index(IndexerSpec(**good), 1)
    for name in ("heads", "top_entries", "block_entries", "top_blocks"):
        with pytest.raises(NotSupported, match=f"{name}=0"):
            component.plan_index(IndexerSpec(**{**good, name: 0}), 1)


def test_more_entries_than_positions_have_digits_for_are_refused() -> None:
    """Two digits of a position must tell all entries apart."""
    component = TileLangAttention(KERNELS)
    spec = IndexerSpec(heads=1, width=32, top_entries=1, block_entries=1, top_blocks=1)
    plan = component.plan_index(spec, 1)
    score_TS = torch.empty(1, 1).expand(1, MOST_ENTRIES + 1)
    with pytest.raises(NotSupported, match=str(MOST_ENTRIES)):
        component.select(plan, score_TS, torch.empty(1, 1, dtype=torch.int64))
    with pytest.raises(NotSupported, match=str(MOST_ENTRIES)):
        component.restrict(plan, score_TS, torch.ones(1, dtype=torch.int64), score_TS)


def test_without_blocks_nothing_is_visible() -> None:
    """A table without columns belongs to sequences that have no entries yet."""
    component = TileLangAttention(KERNELS)
    spec = IndexerSpec(heads=1, width=32, top_entries=1, block_entries=1, top_blocks=1)
    score_TS = torch.zeros(2, 3)
    contract = TestTileLangIndexer()
    keys, _, _ = contract.keys(torch.Generator().manual_seed(0), "mxfp4", 1)
    component.scores(
        component.plan_index(spec, 2),
        torch.zeros(2, 1, 32).bfloat16(),
        torch.zeros(2, 1).bfloat16(),
        keys,
        torch.empty(1, 0, dtype=torch.int64),
        torch.zeros(2, dtype=torch.int64),
        torch.zeros(2, dtype=torch.int64),
        score_TS,
    )
    assert bool((score_TS == -torch.inf).all())
