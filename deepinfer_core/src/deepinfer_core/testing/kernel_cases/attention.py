"""Which inputs does sparse attention get?

Small pages with spare bytes behind their rows. Rows of pages that no list names hold NaN. The first
row's lists are full, the last row has no key at all, and in between absent entries stand anywhere.

Shapes: T rows, N heads, D width, L listed keys, P pages, B bytes of a page.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from deepinfer_core.interfaces.attention import AttentionSpec, CachePages, KeySource
from deepinfer_core.interfaces.operators.attention import KeySourceSpec, SparseAttentionSpec
from deepinfer_core.numeric import encode_rows, number_format
from deepinfer_core.reference.attention import ReferenceAttention
from deepinfer_core.reference.cache_codec import read_rows
from deepinfer_core.testing.kernel_cases.case import KernelCase, Tensors, poisoned
from deepinfer_core.testing.tolerance import roundoff

__all__ = ["cases", "page_views"]

_TWIN = ReferenceAttention()
_PAGES, _SPARE_BYTES = 3, 32

_Source = tuple[str, int, int]
"""Number format, list length, rows of a page (0: one page)."""


def cases() -> list[KernelCase]:
    """All cases of the operator."""
    window, entries = ("mxfp8", 20, 22), ("fp4_e4m3x16", 70, 40)
    many, full = ("fp4_e4m3x16", 150, 64), ("mxfp8", 128, 64)
    return [
        _case(
            "tiny-cache", heads=4, width=64, sources=[("mxfp8", 16, 22), ("fp4_e4m3x16", 16, 64)]
        ),
        _case("tiny-cache-window-only", heads=4, width=64, sources=[("mxfp8", 16, 22)]),
        _case("tiny-prompt", heads=4, width=64, sources=[("bfloat16", 16, 0), entries]),
        _case("three-heads", heads=3, width=64, sources=[window, entries]),
        _case("cache", heads=64, width=512, sources=[window, many], rows=3),
        _case("mxfp8-entries", heads=64, width=512, sources=[window, full], rows=2),
        _case("scores-far-apart", heads=4, width=64, sources=[window, many], queries=2e3),
        _case("prompt", heads=64, width=512, sources=[("bfloat16", 20, 0), entries], rows=2),
        _case("lossless", heads=64, width=512, sources=[("bfloat16", 128, 64)], rows=2),
        _case("float32", heads=4, width=64, sources=[("float32", 17, 0)], compute="float32"),
        _case("two-head-blocks", heads=80, width=64, sources=[window], rows=2),
        _case("extreme-scales", heads=4, width=64, sources=[window, entries], extreme=True),
        _true_shape("decode-fp8", [("mxfp8", 128, 134), ("mxfp8", 512, 64)]),
        _true_shape("decode", [("mxfp8", 128, 134), ("fp4_e4m3x16", 512, 64)]),
        _true_shape("decode-lossless", [("bfloat16", 128, 134), ("bfloat16", 512, 64)]),
        _true_shape("prompt", [("bfloat16", 128, 0), ("fp4_e4m3x16", 512, 64)]),
    ]


def page_views(pages: CachePages, number: int) -> Tensors:
    """The two arguments that show a kernel the pages of source ``number``."""
    form = number_format(pages.number_format)
    data_PE = pages.data_PB.view(form.storage)
    return {f"data_{number}_PE": data_PE, f"scale_{number}_PB": pages.data_PB}


def _case(
    name: str,
    *,
    heads: int,
    width: int,
    sources: Sequence[_Source],
    rows: int = 4,
    compute: str = "bfloat16",
    queries: float = 1,
    extreme: bool = False,
    small: bool = True,
) -> KernelCase:
    spec = SparseAttentionSpec(
        heads=heads,
        head_width=width,
        sources=tuple(
            KeySourceSpec(
                number_format=form, list_capacity=-(-length // 64) * 64, rows_per_page=rows_per_page
            )
            for form, length, rows_per_page in sources
        ),
        compute=compute,
        scale=width**-0.5,
    )
    dtype = getattr(torch, compute)

    def arguments(generator: torch.Generator) -> Tensors:
        q_TND = queries * torch.randn(rows, heads, width, generator=generator)
        found = {"q_TND": q_TND.to(dtype)}
        for number, (source, (_, length, _)) in enumerate(zip(spec.sources, sources, strict=True)):
            pages, slot_TL = _keys(generator, source, width, rows, length, extreme)
            found |= page_views(pages, number) | {f"slot_{number}_TL": slot_TL}
        found["sink_N"] = torch.randn(heads, generator=generator)
        found["out_TND"] = poisoned(rows, heads, width, dtype=dtype)
        found["lse_TN"] = poisoned(rows, heads, dtype=torch.float32)
        return found

    def expect(given: Tensors) -> Tensors:
        lengths = tuple(length for _, length, _ in sources)
        plan = _TWIN.plan(
            AttentionSpec(heads=heads, head_width=width, list_lengths=lengths, compute=compute),
            rows,
        )
        out, lse = given["out_TND"], given["lse_TN"]
        keys = _sources_of(spec, given)
        _TWIN.run(plan, given["q_TND"], keys, given["sink_N"], spec.scale, out, lse)
        return {"out_TND": out, "lse_TN": lse}

    return KernelCase(
        operator="attention_sparse",
        name=name,
        spec=spec,
        arguments=arguments,
        expect=expect,
        bounds=lambda given, expected: _bounds(spec, given, expected),
        small=small,
        moved_bytes=0 if small else _moved_bytes(spec, sources, rows),
        flops=0 if small else 4 * rows * heads * width * sum(length for _, length, _ in sources),
    )


def _true_shape(name: str, sources: Sequence[_Source]) -> KernelCase:
    return _case(f"{name}-128", heads=64, width=512, sources=sources, rows=128, small=False)


def _moved_bytes(spec: SparseAttentionSpec, sources: Sequence[_Source], rows: int) -> int:
    """Queries, outputs, lists and, as rows hardly share any, every listed key."""
    keys = sum(
        length * (number_format(form).row_bytes(spec.head_width) + 8) for form, length, _ in sources
    )
    return rows * (2 * spec.heads * spec.head_width * 2 + keys)


def _keys(
    generator: torch.Generator,
    source: KeySourceSpec,
    width: int,
    rows: int,
    length: int,
    extreme: bool,
) -> tuple[CachePages, torch.Tensor]:
    """Pages, and lists of distinct slots with absent entries; unlisted rows hold 0xFF."""
    form = number_format(source.number_format)
    pages = _PAGES if source.rows_per_page else 1
    rows_per_page = source.rows_per_page or 64 + length
    slots = max(pages, -(-length // rows_per_page)) * rows_per_page
    pages = slots // rows_per_page
    x_SD = torch.randn(slots, width, generator=generator)
    if extreme:
        x_SD *= 2.0 ** torch.randint(-100, 4, (slots, 1), generator=generator)
    listed_TL = torch.rand(rows, slots, generator=generator).argsort(1)[:, :length]
    absent_TL = torch.rand(rows, length, generator=generator) < 0.2
    slot_TL = listed_TL.masked_fill(absent_TL, -1)
    slot_TL[0], slot_TL[-1] = listed_TL[0], -1
    encoded_SB = encode_rows(x_SD, source.number_format)
    unlisted_S = torch.ones(slots, dtype=torch.bool)
    unlisted_S[slot_TL[slot_TL >= 0]] = False
    encoded_SB[unlisted_S] = 0xFF
    used_bytes = rows_per_page * form.row_bytes(width)
    region_bytes = -(-used_bytes // 16) * 16 + _SPARE_BYTES
    data_PB = torch.full((pages, region_bytes), 0xFF, dtype=torch.uint8)
    data_PB[:, :used_bytes] = encoded_SB.view(pages, used_bytes)
    return _pages(source, width, data_PB), slot_TL


def _pages(source: KeySourceSpec, width: int, data_PB: torch.Tensor) -> CachePages:
    row_bytes = number_format(source.number_format).row_bytes(width)
    return CachePages(
        data_PB=data_PB,
        rows_per_page=source.rows_per_page or data_PB.shape[1] // row_bytes,
        width=width,
        number_format=source.number_format,
    )


def _sources_of(spec: SparseAttentionSpec, given: Tensors) -> list[KeySource]:
    return [
        KeySource(
            pages=_pages(source, spec.head_width, given[f"scale_{number}_PB"]),
            slot_TL=given[f"slot_{number}_TL"],
        )
        for number, source in enumerate(spec.sources)
    ]


def _bounds(spec: SparseAttentionSpec, given: Tensors, expected: Tensors) -> Tensors:
    """Twin and kernel are each within the roundings of one softmax and two products.

    With the exact scores s, their largest m and the exact shares p of the keys:

    * A score is a sum of D products; then it is scaled, m is taken from it, and an exponential. So
      a weight is off by the factor exp(e), e <= u ((D + 8) sum |q k| + 4 (|s| + |m|) + 16).
    * A sum over L keys in any order, m changing on the way, adds 2 L + 16 roundings, whether they
      round or drop bits. The divisor is off by sum p e and these.
    * For the second product alone kernels may round each weight to bf16, once.

    So a channel is off by sum p (e + ...) |k|, and by its own size times the divisor's error; both
    sides round it. Of the logarithm of the sum only e and the sum's roundings are left.
    """
    u = roundoff(torch.float32)
    u_weight = u if spec.compute == "float32" else roundoff(torch.bfloat16)
    sources = _sources_of(spec, given)
    read = [read_rows(source.pages, source.slot_TL, torch.float32).double() for source in sources]
    key_TLD, slot_TL = torch.cat(read, 1), torch.cat([source.slot_TL for source in sources], 1)
    q_TND, sink_N = given["q_TND"].double(), given["sink_N"].double()
    score_TNL = spec.scale * q_TND @ key_TLD.transpose(1, 2)
    size_TNL = spec.scale * q_TND.abs() @ key_TLD.abs().transpose(1, 2)
    score_TNL = score_TNL.masked_fill(slot_TL[:, None] < 0, -torch.inf)
    most_TN1 = score_TNL.amax(-1, keepdim=True).nan_to_num(neginf=0)
    far_TNL = 4 * (score_TNL.abs().nan_to_num(posinf=0) + most_TN1.abs())
    off_TNL = torch.expm1(u * ((spec.head_width + 8) * size_TNL + far_TNL + 16))
    tail = (2 * key_TLD.shape[1] + 16) * u

    lse_TN = torch.logsumexp(score_TNL, -1)
    all_TN = torch.logaddexp(lse_TN, sink_N)
    share_TNL = torch.exp(score_TNL - all_TN[..., None])
    divisor_TN = (share_TNL * off_TNL).sum(-1) + tail
    divisor_TN += 8 * u * torch.exp(sink_N - all_TN) * (sink_N.abs() + most_TN1[..., 0].abs() + 2)
    blend_TND = (share_TNL * (off_TNL + tail)) @ key_TLD.abs()
    rounded_TND = share_TNL @ key_TLD.abs() * u_weight
    out_TND = expected["out_TND"].double().abs()
    softmax_TNL = torch.exp(score_TNL - lse_TN[..., None]).nan_to_num(0)
    lse_off_TN = (softmax_TNL * off_TNL).sum(-1) + tail
    lse_off_TN += 4 * u * (lse_TN.abs().nan_to_num(posinf=0) + most_TN1[..., 0].abs())
    form = torch.finfo(expected["out_TND"].dtype)
    # Below the normal numbers a rounding is half of their distance, whatever the size.
    rounding_TND = form.eps / 2 * (out_TND + form.smallest_normal)
    return {
        "out_TND": 2 * (blend_TND + divisor_TN[..., None] * out_TND + rounding_TND) + rounded_TND,
        "lse_TN": 2 * lse_off_TN,
    }
