"""Do trials run on rows that show what they are meant to show?"""

from collections.abc import Callable

import pytest
import torch
from deepinfer_core.engine.proof.samples import Samples, row_count
from deepinfer_core.engine.proof.trial import POOL_ROWS
from deepinfer_core.model.backbone import TextModel


@pytest.fixture
def samples(prove_with: Callable[..., TextModel]) -> Samples:
    return Samples.of(prove_with(strict=()))


def test_rows_differ_in_size_from_a_sixteenth_to_sixteen(samples: Samples) -> None:
    size_P = samples.rows(1000, dtype=torch.float32).square().mean(1).sqrt()
    # Of 1000 normal numbers; the error of such a mean is 2 %, and 10 % are five times that.
    want_P = torch.exp2(torch.arange(POOL_ROWS) - 4.0)
    assert torch.allclose(size_P, want_P, rtol=0.1)


def test_even_rows_are_of_one_size(samples: Samples) -> None:
    size_P = samples.even_rows(20, 1000, dtype=torch.float32).square().mean(1).sqrt()
    assert torch.allclose(size_P, torch.ones(20), rtol=0.1)


def test_every_proof_of_a_model_draws_the_same_numbers(samples: Samples) -> None:
    again = Samples.of(samples.model)
    assert torch.equal(samples.rows(5, dtype=torch.float32), again.rows(5, dtype=torch.float32))


def test_slots_reach_all_pages_and_some_are_absent(samples: Samples) -> None:
    pages = samples.caches.window(0)
    slot_PL = samples.slots(pages, 500)
    assert slot_PL.shape == (POOL_ROWS, 500)
    assert slot_PL.min() == -1
    assert set((slot_PL // pages.rows_per_page).unique().tolist()) == {-1, 0, 1, 2, 3}
    assert slot_PL.max() == row_count(pages) - 1


def test_filled_pages_hold_a_row_in_every_slot(samples: Samples) -> None:
    pages = samples.fill(samples.caches.window(0))
    out_TD = torch.zeros(row_count(pages), pages.width)
    samples.model.parts.codec.load(pages, torch.arange(row_count(pages)), out_TD)
    assert bool(out_TD.any(1).all())
