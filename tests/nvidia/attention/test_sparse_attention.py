"""Does attention by kernels in TileLang, interpreted, keep the contract, and what it adds to it?"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.attention import (
    AttentionSpec,
    CachePages,
    KeySource,
    SparseAttention,
)
from deepinfer_core.numeric import decode_rows, encode_rows
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.attention import AttentionContract
from deepinfer_core.testing.contracts.pages import make_pages
from deepinfer_core.testing.contracts.suite import assert_rows_stand_alone
from deepinfer_core.testing.seeds import seed_of
from deepinfer_core.testing.tiles import InterpretedKernels
from deepinfer_core.testing.tolerance import assert_within, roundoff
from deepinfer_nvidia.attention.tilelang import TileLangAttention

KERNELS = InterpretedKernels()
HEADS, WIDTH = 4, 64


class TestSparseAttention(AttentionContract):
    """On interpreted kernels; the formats and dtypes that have kernels."""

    compute_dtypes: ClassVar[tuple[str, ...]] = ("bfloat16", "float32")
    source_formats: ClassVar[tuple[tuple[str, str], ...]] = (
        ("mxfp8", "fp4_e4m3x16"),
        ("bfloat16", "bfloat16"),
        ("bfloat16", "float32"),
    )
    weight_roundoff: ClassVar[float] = roundoff(torch.bfloat16)

    @pytest.fixture
    def component(self) -> SparseAttention:
        """One object for all slots of attention."""
        return TileLangAttention(KERNELS)

    def test_a_row_does_not_depend_on_its_batch(
        self, component: SparseAttention, formats: tuple[str, str], generator: torch.Generator
    ) -> None:
        """Fewer rows than in the contract, which takes minutes when interpreted."""
        q_TND = self.noise(generator, 3, HEADS, WIDTH, dtype=torch.bfloat16)
        sink_N = self.noise(generator, HEADS, dtype=torch.float32)
        sources = [
            KeySource(pages=self.keys(generator, name)[0], slot_TL=self.lists(generator, 3, 16))
            for name in formats
        ]

        def run(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            some = [replace(source, slot_TL=source.slot_TL[rows]) for source in sources]
            return self.attend(component, q_TND[rows], some, sink_N)

        assert_rows_stand_alone(run, 3, generator, many=(5,))


@pytest.fixture
def generator(request: pytest.FixtureRequest) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(request))


@pytest.fixture
def pages(generator: torch.Generator) -> CachePages:
    found = make_pages("cpu", "mxfp8", WIDTH, pages=20, rows_per_page=10)
    rows_SB = encode_rows(torch.randn(200, WIDTH, generator=generator), "mxfp8")
    found.data_PB[:, : 10 * rows_SB.shape[1]] = rows_SB.view(20, -1)
    return found


def attend(pages: CachePages, slots: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """From fixed queries to listed keys."""
    component = TileLangAttention(KERNELS)
    slot_TL = torch.tensor(slots, dtype=torch.int64)
    rows = len(slot_TL)
    q_TND = torch.linspace(-1, 1, rows * HEADS * WIDTH).view(rows, HEADS, WIDTH).bfloat16()
    spec = AttentionSpec(
        heads=HEADS, head_width=WIDTH, list_lengths=(slot_TL.shape[1],), compute="bfloat16"
    )
    out_TND, lse_TN = torch.empty_like(q_TND), torch.empty(rows, HEADS)
    source = KeySource(pages=pages, slot_TL=slot_TL)
    plan = component.plan(spec, rows)
    component.run(plan, q_TND, [source], torch.zeros(HEADS), 0.11, out_TND, lse_TN)
    return out_TND, lse_TN


@pytest.mark.parametrize("present", [1, 2, 63, 64, 65])
def test_absent_keys_change_no_bit_wherever_they_stand(
    pages: CachePages, present: int, generator: torch.Generator
) -> None:
    slots = torch.randperm(200, generator=generator)[:present].tolist()
    spread = [-1] * (2 * present + 3)
    places = torch.randperm(len(spread), generator=generator)[:present].sort().values.tolist()
    for place, slot in zip(places, slots, strict=True):
        spread[place] = slot
    for got, want in zip(attend(pages, [spread]), attend(pages, [slots]), strict=True):
        assert_same_bits(got, want)


@pytest.mark.parametrize("length", [1, 63, 64, 65, 128, 129])
def test_lists_of_any_length_are_attended(pages: CachePages, length: int) -> None:
    """A list of one slot over and over gives that key."""
    out_TND, _ = attend(pages, [[17] * length])
    key_D = decode_rows(pages.data_PB[1:2, 7 * 66 : 8 * 66], "mxfp8", WIDTH)[0]
    # Against a sink of zero: the weight is w / (w + 1), the same for all channels of a head.
    share_N = (out_TND[0].float() @ key_D) / (key_D @ key_D)
    want_ND = share_N[:, None] * key_D
    # The output is rounded to bf16, by 2^-9 of less than the key; so is the share of it.
    assert_within(out_TND[0], want_ND.double(), 2**-8 * key_D.abs().max().double())
    assert bool((share_N > 0).all())
    assert bool((share_N < 1).all())


def test_a_key_that_is_no_number_shows(pages: CachePages) -> None:
    """And in no other row."""
    pages.data_PB[0, 3 * 66 + 5] = 0x7F
    out_TND, lse_TN = attend(pages, [[3, 4], [4, 5]])
    assert bool(out_TND[0].isnan().all())
    assert bool(lse_TN[0].isnan().all())
    assert bool(out_TND[1].isfinite().all())


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"number_format": "mxfp4"}, "mxfp4"),
        ({"scales_apart": True}, "scales in rows"),
        ({"width": 32}, "width 32"),
        ({"rows_per_page": 1000}, "pages of 66000 bytes"),
    ],
)
def test_pages_without_a_kernel_are_refused(
    pages: CachePages, change: dict[str, object], found: str
) -> None:
    with pytest.raises(NotSupported, match=found):
        attend(replace(pages, **change), [[0]])


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"list_lengths": ()}, "0 key sources"),
        ({"list_lengths": (1, 1, 1)}, "3 key sources"),
        ({"head_width": 96}, "96 channels"),
        ({"compute": "float64"}, "float64"),
    ],
)
def test_calls_without_a_kernel_are_refused(change: dict[str, object], found: str) -> None:
    spec = AttentionSpec(heads=HEADS, head_width=WIDTH, list_lengths=(1,), compute="bfloat16")
    with pytest.raises(NotSupported, match=found):
        TileLangAttention(KERNELS).plan(replace(spec, **change), 1)
