"""Does compiled attention keep what its kernel promises beyond the contract?"""

import pytest
import torch
from deepinfer_core.config.kernel_cache import kernel_cache_folder
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.attention import AttentionSpec, CachePages, KeySource
from deepinfer_core.native.attention import CpuAttention
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.pages import make_pages
from deepinfer_core.testing.seeds import seed_of

HEADS, WIDTH = 8, 64


@pytest.fixture
def generator(request: pytest.FixtureRequest) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(request))


@pytest.fixture(scope="module")
def attention() -> CpuAttention:
    return CpuAttention(kernel_cache_folder())


@pytest.fixture
def pages(attention: CpuAttention, generator: torch.Generator) -> CachePages:
    found = make_pages("cpu", "mxfp8", WIDTH, pages=20, rows_per_page=10)
    attention.store(torch.randn(200, WIDTH, generator=generator), torch.arange(200), found)
    return found


def attend(
    component: CpuAttention, q_TND: torch.Tensor, sources: list[KeySource]
) -> tuple[torch.Tensor, torch.Tensor]:
    spec = AttentionSpec(
        heads=q_TND.shape[1],
        head_width=q_TND.shape[2],
        list_lengths=tuple(source.slot_TL.shape[1] for source in sources),
        compute="float32",
    )
    out_TND, lse_TN = torch.empty_like(q_TND), torch.empty(q_TND.shape[:2])
    sink_N = torch.linspace(-1, 1, q_TND.shape[1])
    component.run(component.plan(spec, len(q_TND)), q_TND, sources, sink_N, 0.11, out_TND, lse_TN)
    return out_TND, lse_TN


@pytest.mark.parametrize("present", [1, 2, 7, 8, 9, 40])
def test_absent_keys_change_no_bit_wherever_they_stand(
    attention: CpuAttention, pages: CachePages, present: int, generator: torch.Generator
) -> None:
    slot_L = torch.randperm(200, generator=generator)[:present]
    spread_L = torch.full((1, 3 * present + 2), -1)
    place_L = torch.randperm(spread_L.shape[1], generator=generator)[:present].sort().values
    spread_L[0, place_L] = slot_L
    q_TND = torch.randn(1, HEADS, WIDTH, generator=generator)
    want = attend(attention, q_TND, [KeySource(pages=pages, slot_TL=slot_L[None])])
    got = attend(attention, q_TND, [KeySource(pages=pages, slot_TL=spread_L)])
    for cut in range(present + 1):
        parts = [
            KeySource(pages=pages, slot_TL=part)
            for part in (slot_L[None, :cut], slot_L[None, cut:])
        ]
        assert_same_bits(attend(attention, q_TND, parts)[0], want[0])
    assert_same_bits(got[0], want[0])
    assert_same_bits(got[1], want[1])


@pytest.mark.parametrize("rows", [7, 8, 9, 6000])
def test_threads_change_no_bit(
    attention: CpuAttention, pages: CachePages, rows: int, generator: torch.Generator
) -> None:
    slot_TL = torch.randint(-50, 200, (rows, 60), generator=generator).clamp(min=-1)
    q_TND = torch.randn(rows, HEADS, WIDTH, generator=generator)
    sources = [KeySource(pages=pages, slot_TL=slot_TL)]
    want = attend(attention, q_TND, sources)
    several = CpuAttention(kernel_cache_folder(), threads=3)
    # Often enough for threads to meet, on a busy machine too.
    for _ in range(3):
        for got, alone in zip(attend(several, q_TND, sources), want, strict=True):
            assert_same_bits(got, alone)


@pytest.mark.parametrize("heads", [1, 4, 5, 8, 12, 13, 17])
def test_a_head_does_not_depend_on_how_many_there_are(
    attention: CpuAttention, pages: CachePages, heads: int, generator: torch.Generator
) -> None:
    slot_TL = torch.randint(0, 200, (2, 33), generator=generator)
    sources = [KeySource(pages=pages, slot_TL=slot_TL)]
    q_TND = torch.randn(2, heads, WIDTH, generator=generator)
    out_TND, lse_TN = attend(attention, q_TND, sources)
    for head in range(heads):
        one = q_TND[:, head : head + 1].contiguous()
        scores_TL = []
        for row in range(2):
            key_LD = torch.empty(33, WIDTH)
            attention.load(pages, slot_TL[row], key_LD)
            scores_TL.append(0.11 * key_LD.double() @ one[row, 0].double())
        want_T = torch.stack(scores_TL).logsumexp(-1)
        # D products of up to 4 x 4, and 33 exponentials of two roundings.
        assert float((lse_TN[:, head] - want_T).abs().max()) <= (64 * 16 + 70) * 2.0**-24 * 0.11 * 8
        assert out_TND[:, head].isfinite().all()


def test_lists_of_another_length_or_width_are_refused(
    attention: CpuAttention, pages: CachePages
) -> None:
    q_TND = torch.zeros(2, HEADS, WIDTH)
    out_TND, lse_TN = torch.empty_like(q_TND), torch.empty(2, HEADS)
    spec = AttentionSpec(heads=HEADS, head_width=WIDTH, list_lengths=(5,), compute="float32")
    plan = attention.plan(spec, 2)
    source = KeySource(pages=pages, slot_TL=torch.zeros(2, 4, dtype=torch.int64))
    with pytest.raises(NotSupported, match=r"\(2, 5\)"):
        attention.run(plan, q_TND, [source], torch.zeros(HEADS), 1.0, out_TND, lse_TN)
    narrow = make_pages("cpu", "mxfp8", 32)
    source = KeySource(pages=narrow, slot_TL=torch.zeros(2, 5, dtype=torch.int64))
    with pytest.raises(NotSupported, match="width 64"):
        attention.run(plan, q_TND, [source], torch.zeros(HEADS), 1.0, out_TND, lse_TN)
    wide = AttentionSpec(heads=HEADS, head_width=WIDTH, list_lengths=(5,), compute="float64")
    with pytest.raises(NotSupported, match="float64"):
        attention.plan(wide, 2)
    odd = AttentionSpec(heads=HEADS, head_width=63, list_lengths=(5,), compute="float32")
    with pytest.raises(NotSupported, match="63 channels"):
        attention.plan(odd, 2)
