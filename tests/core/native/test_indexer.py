"""Do compiled scores and choices agree with the reference beyond the contract's small sizes?"""

from dataclasses import replace

import pytest
import torch
from deepinfer_core.config.kernel_cache import kernel_cache_folder
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.attention import CachePages, Indexer, IndexerSpec
from deepinfer_core.native.attention import CpuAttention
from deepinfer_core.numeric import fake_quantise
from deepinfer_core.reference.attention import ReferenceAttention
from deepinfer_core.reference.cache_codec import read_rows
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.pages import make_pages
from deepinfer_core.testing.seeds import seed_of
from deepinfer_core.testing.tolerance import assert_within

HEADS, WIDTH, PAGE = 8, 32, 64


@pytest.fixture
def generator(request: pytest.FixtureRequest) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(request))


@pytest.fixture(scope="module")
def indexer() -> CpuAttention:
    return CpuAttention(kernel_cache_folder())


def spec(
    *, top_entries: int = 64, block: int = 8, top_blocks: int = 32, width: int = WIDTH
) -> IndexerSpec:
    return IndexerSpec(
        heads=HEADS,
        width=width,
        top_entries=top_entries,
        block_entries=block,
        top_blocks=top_blocks,
    )


def chosen(indexer: Indexer, score_TS: torch.Tensor, top_entries: int) -> torch.Tensor:
    index_TL = torch.empty(len(score_TS), top_entries, dtype=torch.int64)
    plan = indexer.plan_index(spec(top_entries=top_entries), len(score_TS))
    indexer.select(plan, score_TS, index_TL)
    return index_TL


def filled_pages(
    codec: CpuAttention,
    generator: torch.Generator,
    entries: int,
    width: int = WIDTH,
    power: int = 0,
) -> tuple[CachePages, torch.Tensor]:
    """Index keys of one sequence in blocks of random order, and its block table."""
    blocks = -(-entries // PAGE)
    pages = make_pages(
        "cpu", "mxfp4", width, pages=blocks + 1, rows_per_page=PAGE, scales_apart=True
    )
    table_QB = 1 + torch.randperm(blocks, generator=generator)[None]
    slot_T = (table_QB[0, :, None] * PAGE + torch.arange(PAGE)).flatten()
    size_T1 = torch.exp2(torch.randint(-9, 9, (len(slot_T), 1), generator=generator) + power)
    codec.store(torch.randn(len(slot_T), width, generator=generator) * size_T1, slot_T, pages)
    return pages, table_QB


def listed_keys(pages: CachePages, table_QB: torch.Tensor, entries: int) -> torch.Tensor:
    slot_S = (table_QB[0, :, None] * PAGE + torch.arange(PAGE)).flatten()
    return read_rows(pages, slot_S, torch.float64)[:entries]


def scores(
    indexer: Indexer,
    query_THJ: torch.Tensor,
    weight_TH: torch.Tensor,
    pages: CachePages,
    table_QB: torch.Tensor,
    visible_T: torch.Tensor,
    entries: int,
) -> torch.Tensor:
    score_TS = torch.full((len(query_THJ), entries), torch.nan)
    indexer.scores(
        indexer.plan_index(spec(width=query_THJ.shape[2]), len(query_THJ)),
        query_THJ,
        weight_TH,
        pages,
        table_QB,
        torch.zeros(len(query_THJ), dtype=torch.int64),
        visible_T,
        score_TS,
    )
    return score_TS


def assert_near(
    got_S: torch.Tensor, query_HJ: torch.Tensor, weight_H: torch.Tensor, key_SJ: torch.Tensor
) -> None:
    query_HJ, weight_H = query_HJ.double(), weight_H.double()
    want_S = weight_H @ (query_HJ @ key_SJ.t()).relu()
    size_S = weight_H.abs() @ (query_HJ.abs() @ key_SJ.abs().t())
    # J products in each of H products.
    terms = key_SJ.shape[1] + len(weight_H) + 4
    assert_within(got_S, want_S, terms * 2.0**-24 * size_S)


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 2000])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("form", ["rounded", "unrounded", "both"])
def test_scores_around_the_tiles_of_rows_and_entries_are_those_of_the_row_alone(
    rows: int, threads: int, form: str, indexer: CpuAttention, generator: torch.Generator
) -> None:
    entries = 600
    pages, table_QB = filled_pages(indexer, generator, entries)
    query_THJ = torch.randn(rows, HEADS, WIDTH, generator=generator).bfloat16()
    step = {"rounded": 1, "unrounded": rows + 1, "both": 2}[form]
    query_THJ[step - 1 :: step] = fake_quantise(query_THJ[step - 1 :: step], "mxfp4")
    weight_TH = torch.randn(rows, HEADS, generator=generator)
    visible_T = torch.randint(0, entries + 1, (rows,), generator=generator)
    visible_T[:6] = torch.tensor([255, 256, 257, 31, 32, 33])[:rows]
    several = CpuAttention(kernel_cache_folder(), threads=threads)
    together = scores(several, query_THJ, weight_TH, pages, table_QB, visible_T, entries)
    # Often enough for threads to meet, on a busy machine too.
    for _ in range(3 if threads > 1 else 0):
        again = scores(several, query_THJ, weight_TH, pages, table_QB, visible_T, entries)
        assert_same_bits(again, together)
    key_SJ = listed_keys(pages, table_QB, entries)
    for row in range(0, rows, max(7, rows // 40)):
        one = slice(row, row + 1)
        alone = scores(
            indexer, query_THJ[one], weight_TH[one], pages, table_QB, visible_T[one], entries
        )
        assert_same_bits(together[one], alone)
        seen = int(visible_T[row])
        assert_near(alone[0, :seen], query_THJ[row], weight_TH[row], key_SJ[:seen])
        assert bool((alone[0, seen:] == -torch.inf).all())


@pytest.mark.parametrize("width", [32, 64, 128])
@pytest.mark.parametrize("power", [-100, -51, -50, -40, 0, 40, 50, 51, 100])
def test_rounded_queries_of_any_size_and_number_of_groups_have_near_scores(
    width: int, power: int, indexer: CpuAttention, generator: torch.Generator
) -> None:
    # Products of all three are in range; those of the query and the weight alone need not be.
    pages, table_QB = filled_pages(indexer, generator, 300, width, -power)
    query_THJ = torch.randn(4, HEADS, width, generator=generator) * 2.0**power
    query_THJ[1, 3] = 0
    query_THJ = fake_quantise(query_THJ, "mxfp4")
    weight_TH = torch.randn(4, HEADS, generator=generator)
    weight_TH[2, 1], weight_TH[3] = 0, weight_TH[3] * 2.0 ** (0.4 * power)
    if abs(power) == 40:
        weight_TH[1] *= 2.0 ** (2.6 * power)
    visible_T = torch.full((4,), 300)
    got_TS = scores(indexer, query_THJ, weight_TH, pages, table_QB, visible_T, 300)
    key_SJ = listed_keys(pages, table_QB, 300)
    for row in range(4):
        assert_near(got_TS[row], query_THJ[row], weight_TH[row], key_SJ)


def test_small_whole_numbers_have_whole_scores(
    indexer: CpuAttention, generator: torch.Generator
) -> None:
    pages, table_QB = filled_pages(indexer, generator, 64)
    number = torch.tensor([-6.0, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6])
    key_SJ = number[torch.randint(0, 11, (64, WIDTH), generator=generator)]
    key_SJ[:, 0] = 6
    indexer.store(key_SJ, table_QB[0, 0] * PAGE + torch.arange(64), pages)
    query_THJ = number[torch.randint(0, 11, (9, HEADS, WIDTH), generator=generator)]
    weight_TH = torch.randint(-3, 4, (9, HEADS), generator=generator).float()
    got_TS = scores(indexer, query_THJ, weight_TH, pages, table_QB, torch.full((9,), 64), 64)
    dot_THS = (query_THJ.double() @ key_SJ.double().t()).relu()
    assert_same_bits(got_TS, torch.einsum("th,ths->ts", weight_TH.double(), dot_THS).float() + 0.0)


@pytest.mark.parametrize("width", [32, 64])
def test_a_key_that_is_not_a_number_scores_zero(
    width: int, indexer: CpuAttention, generator: torch.Generator
) -> None:
    pages, table_QB = filled_pages(indexer, generator, 64, width)
    key_SJ = torch.randn(64, width, generator=generator)
    key_SJ[9, width - 9] = torch.nan
    indexer.store(key_SJ, table_QB[0, 0] * PAGE + torch.arange(64), pages)
    query_THJ = torch.randn(2, HEADS, width, generator=generator)
    query_THJ[0] = fake_quantise(query_THJ[0], "mxfp4")
    ones_TH = torch.ones(2, HEADS)
    got_TS = scores(indexer, query_THJ, ones_TH, pages, table_QB, torch.full((2,), 64), 64)
    assert bool((got_TS[:, 9] == 0).all())
    assert not bool(got_TS.isnan().any())


@pytest.mark.parametrize("top_entries", [1, 2, 63, 64, 65, 299, 300, 301])
@pytest.mark.parametrize("values", [1, 3, 100, 10**9])
def test_choices_are_those_of_the_reference(
    indexer: CpuAttention, top_entries: int, values: int, generator: torch.Generator
) -> None:
    # From one score for all entries to hardly any ties; some are hidden, zeros have both signs.
    score_TS = torch.randint(0, values, (40, 300), generator=generator) - values // 2 + 0.0
    score_TS *= torch.exp2(torch.randint(-3, 3, (40, 1), generator=generator))
    score_TS *= torch.where(torch.rand(40, 300, generator=generator) < 0.5, 1.0, -1.0)
    hidden_TS = torch.rand(40, 300, generator=generator) < torch.linspace(0, 1, 40)[:, None]
    score_TS.masked_fill_(hidden_TS, -torch.inf)
    score_TS[7, 5], score_TS[7, 9] = torch.inf, torch.finfo(torch.float32).tiny / 8
    want = chosen(ReferenceAttention(), score_TS, top_entries)
    assert_same_bits(chosen(indexer, score_TS, top_entries), want)


@pytest.mark.parametrize("order", ["ascending", "descending", "equal", "neighbours", "none"])
@pytest.mark.parametrize("entries", [15, 16, 17, 255, 256, 257, 5000])
def test_choices_in_long_rows_of_any_order_are_those_of_the_reference(
    indexer: CpuAttention, order: str, entries: int, generator: torch.Generator
) -> None:
    score_TS = torch.randn(3, entries, generator=generator)
    score_TS[1] = score_TS[1].mul(3).round()
    if order in ("ascending", "descending"):
        score_TS = score_TS.sort(descending=order == "descending").values
    if order == "equal":
        score_TS.fill_(-1.5)
    if order == "neighbours":  # the last ones are better by a unit in the last place
        score_TS.fill_(1.0)[:, -10:] += 2.0**-23
    want = chosen(ReferenceAttention(), score_TS, 64)
    assert_same_bits(chosen(indexer, score_TS, 64), want)


@pytest.mark.parametrize("block", [1, 5, 16, 27])
def test_pools_of_blocks_of_any_size_are_those_of_the_reference(
    indexer: CpuAttention, block: int, generator: torch.Generator
) -> None:
    visible_T = torch.randint(0, 301, (60,), generator=generator)
    pool_TS = torch.randint(-9, 9, (60, 300), generator=generator).float()
    pool_TS[3, ::2], pool_TS[5], pool_TS[6, ::7] = torch.inf, -torch.inf, -torch.inf
    score_TS = torch.randn(60, 300, generator=generator)
    results = []
    for component in (indexer, ReferenceAttention()):
        results.append(score_TS.clone())
        plan = component.plan_index(spec(block=block, top_blocks=4), 60)
        component.restrict(plan, pool_TS, visible_T, results[-1])
    assert_same_bits(results[0], results[1])


@pytest.mark.parametrize("top_blocks", [1, 2, 5, 37, 38, 39])
def test_pools_are_those_of_the_reference(
    indexer: CpuAttention, top_blocks: int, generator: torch.Generator
) -> None:
    # 300 entries are 37 blocks of eight and a half one; few values, so that blocks tie.
    visible_T = torch.randint(0, 301, (60,), generator=generator)
    visible_T[:4] = torch.tensor([0, 1, 8, 300])
    pool_TS = torch.randint(-2, 3, (60, 300), generator=generator).float()
    pool_TS[5, 20], pool_TS[6, :] = torch.inf, -torch.inf
    score_TS = torch.randn(60, 300, generator=generator)
    for entries in (300, 150):
        results = []
        for component in (indexer, ReferenceAttention()):
            results.append(score_TS[:, :entries].clone())
            plan = component.plan_index(spec(top_blocks=top_blocks), 60)
            component.restrict(plan, pool_TS, visible_T, results[-1])
        assert_same_bits(results[0], results[1])


@pytest.mark.parametrize("form", ["rounded", "unrounded"])
def test_entries_without_a_block_score_as_keys_of_zeros(
    form: str, indexer: CpuAttention, generator: torch.Generator
) -> None:
    pages, table_QB = filled_pages(indexer, generator, 130)
    table_QB[0, 1] = -1
    query_THJ = torch.randn(1, HEADS, WIDTH, generator=generator)
    if form == "rounded":
        query_THJ = fake_quantise(query_THJ, "mxfp4")
    weight_TH = torch.ones(1, HEADS)
    got = scores(indexer, query_THJ, weight_TH, pages, table_QB, torch.tensor([130]), 130)
    assert_same_bits(got[0, 64:128], torch.zeros(64))
    assert bool((got[0, :64] > 0).any())


def test_scores_of_another_dtype_are_refused(indexer: CpuAttention) -> None:
    index_TL = torch.empty(2, 64, dtype=torch.int64)
    with pytest.raises(NotSupported, match="float64"):
        indexer.select(indexer.plan_index(spec(), 2), torch.zeros(2, 9).double(), index_TL)
    with pytest.raises(NotSupported, match="blocks of 0 entries"):
        indexer.plan_index(spec(block=0), 2)
    with pytest.raises(NotSupported, match="31 channels"):
        indexer.plan_index(replace(spec(), width=31), 2)
