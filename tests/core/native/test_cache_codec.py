"""Do compiled cache rows have the bytes of the reference?"""

import pytest
import torch
from deepinfer_core.config.kernel_cache import kernel_cache_folder
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.attention import CachePages
from deepinfer_core.native.attention import CpuAttention
from deepinfer_core.numeric import number_format
from deepinfer_core.reference.cache_codec import ReferenceCacheCodec
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.pages import make_pages
from deepinfer_core.testing.seeds import seed_of

WIDTH = 64
FORMATS = ["mxfp8", "mxfp4", "fp4_e4m3x16", "bfloat16", "float32"]
QUANTISED = FORMATS[:3]


@pytest.fixture
def generator(request: pytest.FixtureRequest) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(request))


@pytest.fixture(scope="module")
def codec() -> CpuAttention:
    return CpuAttention(kernel_cache_folder())


def pages_for(rows: int, name: str, *, scales_apart: bool = False) -> CachePages:
    return make_pages(
        "cpu", name, WIDTH, pages=-(-rows // 7), rows_per_page=7, scales_apart=scales_apart
    )


def check_bytes(codec: CpuAttention, x_TD: torch.Tensor, name: str, *, scales_apart: bool) -> None:
    slot_T = torch.arange(len(x_TD))
    got = pages_for(len(x_TD), name, scales_apart=scales_apart)
    want = pages_for(len(x_TD), name, scales_apart=scales_apart)
    codec.store(x_TD, slot_T, got)
    ReferenceCacheCodec().store(x_TD, slot_T, want)
    assert_same_bits(got.data_PB, want.data_PB)


@pytest.mark.parametrize("scales_apart", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_every_bf16_number_is_stored_with_the_bytes_of_the_reference(
    codec: CpuAttention, name: str, scales_apart: bool, generator: torch.Generator
) -> None:
    # All numbers but NaN, among neighbours of their own size and among neighbours of any size.
    x = torch.arange(1 << 16).to(torch.int16).view(torch.bfloat16)
    x = x[~x.isnan()]
    shuffled = x[torch.randperm(len(x), generator=generator)]
    for values in (x, shuffled):
        rows = len(values) // WIDTH
        check_bytes(
            codec, values[: rows * WIDTH].view(rows, WIDTH), name, scales_apart=scales_apart
        )


@pytest.mark.parametrize("name", FORMATS)
def test_fp32_numbers_at_and_beside_every_tie_are_stored_with_the_bytes_of_the_reference(
    codec: CpuAttention, name: str, generator: torch.Generator
) -> None:
    # Multiples of a sixteenth of the smallest step of both element types, each with its neighbours,
    # behind a first channel that fixes the group's scale.
    grid = torch.arange(0, 6 * 16 + 1) / 16
    ties = torch.cat([grid, grid * 2.0**-7, torch.arange(0, 449, 0.5)])
    x = torch.cat([ties, ties.nextafter(torch.tensor(1e9)), ties.nextafter(torch.tensor(-1e9))])
    x = torch.cat([x, -x])
    x = torch.nn.functional.pad(x, (0, -len(x) % 15)).view(-1, 15)
    for first in (6.0, 448.0):
        x_T16 = torch.cat([torch.full((len(x), 1), first), x], 1)
        x_T16 = torch.nn.functional.pad(x_T16, (0, 0, 0, -len(x_T16) % 4))
        check_bytes(codec, x_T16.view(-1, WIDTH), name, scales_apart=False)
    scale_T1 = torch.exp2(torch.randint(-150, 127, (500, 1), generator=generator).double())
    x_TD = torch.randn(500, WIDTH, generator=generator).double() * scale_T1
    check_bytes(codec, x_TD.float(), name, scales_apart=False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", QUANTISED)
def test_every_byte_is_read_as_the_reference_reads_it(
    codec: CpuAttention, name: str, dtype: torch.dtype
) -> None:
    # Page by page every scale byte, and eight rows with every data byte.
    form = number_format(name)
    pages = make_pages("cpu", name, WIDTH, pages=256, rows_per_page=8)
    scale_PRB = torch.arange(256).view(-1, 1, 1).expand(256, 8, form.scale_bytes(WIDTH))
    data_RB = torch.arange(8 * form.data_bytes(WIDTH)).view(8, -1) % 256
    bytes_PRB = torch.cat([data_RB.expand(256, -1, -1), scale_PRB], 2).to(torch.uint8)
    pages.data_PB[:, : bytes_PRB[0].numel()] = bytes_PRB.flatten(1)
    slot_T = torch.arange(2048)
    got, want = (torch.empty(2048, WIDTH, dtype=dtype) for _ in range(2))
    codec.load(pages, slot_T, got)
    ReferenceCacheCodec().load(pages, slot_T, want)
    assert torch.equal(got.isnan(), want.isnan())
    assert_same_bits(got.nan_to_num(1, 2, 3), want.nan_to_num(1, 2, 3))


def test_a_pair_without_a_partner_blends_with_zeros_as_in_the_reference(
    codec: CpuAttention, generator: torch.Generator
) -> None:
    value_TD, gate_TD = (torch.randn(3, 20, generator=generator) for _ in range(2))
    state = make_pages("cpu", "float32", 40)
    absent_T = torch.full((3,), -1)
    got, want = torch.empty(3, 20), torch.empty(3, 20)
    for component, latent in ((codec, got), (ReferenceCacheCodec(), want)):
        component.compress_pairs(value_TD, gate_TD, absent_T, absent_T, absent_T, state, latent)
    # Two exponentials of two roundings each, two products, two sums, a quotient: at most 10 of the
    # larger value, on each side.
    assert float((got - want).abs().max()) <= 20 * 2.0**-24 * float(value_TD.abs().max())


def test_what_a_kernel_cannot_read_is_refused(codec: CpuAttention) -> None:
    pages = make_pages("cpu", "mxfp8", WIDTH)
    slot_T = torch.tensor([0, 1])
    with pytest.raises(NotSupported, match="float64"):
        codec.store(torch.zeros(2, WIDTH, dtype=torch.float64), slot_T, pages)
    with pytest.raises(NotSupported, match=r"\(2, 64\)"):
        codec.store(torch.zeros(2, 32), slot_T, pages)
    with pytest.raises(NotSupported, match="int64"):
        codec.store(torch.zeros(2, WIDTH), slot_T.int(), pages)
    with pytest.raises(NotSupported, match="strides"):
        codec.load(pages, slot_T, torch.zeros(2, 2 * WIDTH)[:, :WIDTH])
    with pytest.raises(NotSupported, match="float64"):
        codec.row_bytes("float64", WIDTH)
    short = make_pages("cpu", "mxfp8", WIDTH, rows_per_page=50)
    short = CachePages(
        data_PB=short.data_PB[:, :100], rows_per_page=50, width=WIDTH, number_format="mxfp8"
    )
    with pytest.raises(NotSupported, match="3300 bytes"):
        codec.store(torch.zeros(2, WIDTH), slot_T, short)
    with pytest.raises(NotSupported, match="width 64"):
        codec.compress_pairs(
            torch.zeros(2, WIDTH),
            torch.zeros(2, WIDTH),
            slot_T,
            slot_T,
            slot_T,
            make_pages("cpu", "float32", WIDTH),
            torch.zeros(2, WIDTH),
        )


def test_rows_that_lie_apart_are_stored_all_the_same(codec: CpuAttention) -> None:
    x_TD = torch.randn(3, 2 * WIDTH, generator=torch.Generator().manual_seed(1))[:, ::2]
    check_bytes(codec, x_TD, "mxfp8", scales_apart=False)
