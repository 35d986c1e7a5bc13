"""Which inputs do the kernels get that move rows into caches and out of them?

Widths are those of the model and of a small one. Rows have magnitudes from zero to almost the
largest, and values half way between two codes. Slots are in any order, some of them absent.

Shapes: T rows, D width, P pages, R rows of a page, X stored elements of a row, G scales of a row.
"""

from __future__ import annotations

import math

import torch

from deepinfer_core.interfaces.attention import CachePages
from deepinfer_core.interfaces.operators.cache import (
    CompressPairsSpec,
    RowPagesSpec,
    RowsSpec,
)
from deepinfer_core.numeric import number_format
from deepinfer_core.reference.cache_codec import ReferenceCacheCodec
from deepinfer_core.testing.kernel_cases.case import KernelCase, Tensors, poisoned
from deepinfer_core.testing.tolerance import roundoff

__all__ = ["cases", "dense_pages", "joined_pages"]

_TWIN = ReferenceCacheCodec()
_PAGES = 3
_MANY = 1000
"""Rows, from which on a case is one of the model's sizes."""

_E4M3_NAN, _UE8M0_NAN = 0x7F, 0xFF


def cases() -> list[KernelCase]:
    """All cases of the family."""
    found = []
    for name, width, rows_per_page, rows in (
        ("mxfp8", 512, 134, 16),  # rows that fill the last block of 128 threads
        ("mxfp8", 64, 22, 9),
        ("fp4_e4m3x16", 512, 64, 16),
        ("fp4_e4m3x16", 64, 8, 9),
        ("mxfp4", 128, 64, 32),
        ("mxfp4", 32, 16, 9),
        ("bfloat16", 512, 5, 10),
        ("float32", 32, 5, 9),
    ):
        for dtype in ("bfloat16", "float32"):
            found += [
                _store(name, width, rows_per_page, dtype, rows=rows),
                _load(name, width, rows_per_page, dtype, rows=rows),
            ]
    found += [
        _store("mxfp8", 512, 134, "bfloat16", rows=300, small=False),
        _store("fp4_e4m3x16", 512, 64, "bfloat16", rows=180, small=False),
        _load("mxfp8", 512, 134, "bfloat16", rows=300, small=False),
    ]
    # Prompts: rows of the window, of entries and of index keys.
    for name, width, rows_per_page in (("mxfp8", 512, 134), ("fp4_e4m3x16", 512, 64)):
        found += [
            make(name, width, rows_per_page, "bfloat16", rows=8192, small=False)
            for make in (_store, _load)
        ]
    found.append(_store("mxfp4", 128, 64, "bfloat16", rows=8192, small=False))
    for width, dtype, rows in (
        (512, "bfloat16", 4),
        (64, "float32", 12),
        (64, "bfloat16", 1),
        # Rows that end within a block of threads.
        (20, "float32", 30),
        (512, "bfloat16", 8192),
    ):
        found += [_compress(width, dtype, rows), _keep(width, dtype, rows)]
    return found


def dense_pages(name: str, width: int, rows_per_page: int, element_bytes: int = 0) -> RowPagesSpec:
    """The layout of data and scales in tensors of their own.

    Args:
        name: number format.
        width: channels of a row.
        rows_per_page: rows of a page.
        element_bytes: of the data's elements; 0: those of the format.
    """
    form = number_format(name)
    stored = form.data_bytes(width) // (element_bytes or form.storage.itemsize)
    scales = form.scale_bytes(width)
    return RowPagesSpec(
        number_format=name,
        width=width,
        rows_per_page=rows_per_page,
        data_strides=(rows_per_page * stored, stored),
        scale_strides=(rows_per_page * scales, scales),
        alignment_bytes=math.gcd(16, form.data_bytes(width)),
    )


def joined_pages(spec: RowPagesSpec, given: Tensors) -> CachePages:
    """The same rows as the twin takes them: all data of a page, then all scales; a copy."""
    parts = [given["data_PRX"].contiguous().view(torch.uint8).flatten(1)]
    if "scale_PRG" in given:
        parts.append(given["scale_PRG"].contiguous().view(torch.uint8).flatten(1))
    return CachePages(
        data_PB=torch.cat(parts, 1),
        rows_per_page=spec.rows_per_page,
        width=spec.width,
        number_format=spec.number_format,
        scales_apart=True,
    )


def _parted(pages: CachePages, given: Tensors) -> Tensors:
    """The bytes of pages in the shapes of the kernel's arguments."""
    parts: Tensors = {}
    start = 0
    for name in ("data_PRX", "scale_PRG"):
        if name in given:
            size = given[name][0].nbytes
            part_PB = pages.data_PB[:, start : start + size].contiguous()
            parts[name] = part_PB.view(given[name].dtype).view(given[name].shape)
            start += size
    return parts


def _pages_for(rows: int, rows_per_page: int) -> int:
    """So many that not all slots are taken, nor all of the last page."""
    return max(_PAGES, 2 * rows // rows_per_page)


def _bytes_of(spec: RowPagesSpec, rows: int, generator: torch.Generator) -> Tensors:
    """Rows of any bytes, except codes that are not numbers; those have no defined bits."""
    form = number_format(spec.number_format)
    shape = (_pages_for(rows, spec.rows_per_page), spec.rows_per_page)
    if form.is_plain:
        x = torch.randn(*shape, spec.width, generator=generator)
        return {"data_PRX": x.to(form.storage)}
    data = _any_bytes((*shape, form.data_bytes(spec.width)), generator)
    scale = _any_bytes((*shape, form.scale_bytes(spec.width)), generator)
    if form.storage == torch.float8_e4m3fn:
        data = _without(data, _E4M3_NAN).view(form.storage)
    if form.scale == "e4m3":
        return {"data_PRX": data, "scale_PRG": _without(scale, _E4M3_NAN).view(torch.float8_e4m3fn)}
    return {"data_PRX": data, "scale_PRG": scale.masked_fill(scale == _UE8M0_NAN, 1)}


def _any_bytes(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.randint(0, 256, shape, generator=generator).to(torch.uint8)


def _without(codes: torch.Tensor, magnitude: int) -> torch.Tensor:
    return torch.where((codes & 0x7F) == magnitude, codes - 1, codes)


def _rows(rows: int, width: int, dtype: str, generator: torch.Generator) -> torch.Tensor:
    """Random rows; then one of ties between codes, one of zeros, one of all magnitudes."""
    x_TD = torch.randn(rows, width, generator=generator)
    if rows >= 9:
        x_TD[2] = torch.randint(-24, 25, (width,), generator=generator) * 0.25
        x_TD[3] = 0.0
        x_TD[4] = torch.tensor([10.0]).pow(torch.linspace(-30, 30, width))
        x_TD[5] = -1e-30
        x_TD[6] *= 1e4
        x_TD[7] = torch.where(torch.arange(width) % 7 == 0, -torch.inf, x_TD[7])
    return x_TD.to(getattr(torch, dtype))


def _slots(
    spec: RowPagesSpec | CompressPairsSpec, rows: int, generator: torch.Generator
) -> torch.Tensor:
    """Distinct slots in any order, the first one among them; the second row has none."""
    count = _pages_for(rows, spec.rows_per_page) * spec.rows_per_page
    slot_T = torch.randperm(count, generator=generator)[:rows]
    if rows:
        slot_T[slot_T == 0] = slot_T[-1].clone()
        slot_T[-1] = 0
    slot_T[1:2] = -1
    return slot_T


def _store(
    name: str, width: int, rows_per_page: int, dtype: str, *, rows: int, small: bool = True
) -> KernelCase:
    pages = dense_pages(name, width, rows_per_page)

    def arguments(generator: torch.Generator) -> Tensors:
        return {
            "x_TD": _rows(rows, width, dtype, generator),
            "slot_T": _slots(pages, rows, generator),
            **_bytes_of(pages, rows, generator),
        }

    def expect(given: Tensors) -> Tensors:
        joined = joined_pages(pages, given)
        _TWIN.store(given["x_TD"], given["slot_T"], joined)
        return _parted(joined, given)

    return KernelCase(
        operator="attention_store_rows",
        name=f"{name}-{width}-{dtype}-rows-{rows}",
        spec=RowsSpec(pages=pages, dtype=dtype),
        arguments=arguments,
        expect=expect,
        small=small,
        moved_bytes=0 if small else _moved_bytes(pages, dtype, rows),
    )


def _load(
    name: str, width: int, rows_per_page: int, dtype: str, *, rows: int, small: bool = True
) -> KernelCase:
    pages = dense_pages(name, width, rows_per_page)

    def arguments(generator: torch.Generator) -> Tensors:
        return {
            **_bytes_of(pages, rows, generator),
            "slot_T": _slots(pages, rows, generator),
            "out_TD": poisoned(rows, width, dtype=getattr(torch, dtype)),
        }

    def expect(given: Tensors) -> Tensors:
        _TWIN.load(joined_pages(pages, given), given["slot_T"], given["out_TD"])
        return {"out_TD": given["out_TD"]}

    return KernelCase(
        operator="attention_load_rows",
        name=f"{name}-{width}-{dtype}-rows-{rows}",
        spec=RowsSpec(pages=pages, dtype=dtype),
        arguments=arguments,
        expect=expect,
        small=small,
        moved_bytes=0 if small else _moved_bytes(pages, dtype, rows),
    )


def _moved_bytes(pages: RowPagesSpec, dtype: str, rows: int) -> int:
    """Each row as it is, as its codes, and its slot."""
    plain: int = pages.width * getattr(torch, dtype).itemsize
    return rows * (plain + number_format(pages.number_format).row_bytes(pages.width) + 8)


def _pair_spec(width: int, dtype: str) -> CompressPairsSpec:
    return CompressPairsSpec(
        width=width, rows_per_page=7, state_strides=(14 * width, 2 * width), dtype=dtype
    )


def _pair_arguments(width: int, rows: int, generator: torch.Generator) -> Tensors:
    return {
        "value_TD": torch.randn(rows, width, generator=generator),
        "gate_TD": 20 * torch.randn(rows, width, generator=generator),
    }


def _state(spec: CompressPairsSpec, state_PRX: torch.Tensor) -> CachePages:
    return CachePages(
        data_PB=state_PRX.view(torch.uint8).flatten(1),
        rows_per_page=spec.rows_per_page,
        width=2 * spec.width,
        number_format="float32",
    )


def _compress(width: int, dtype: str, rows: int) -> KernelCase:
    spec = _pair_spec(width, dtype)

    def arguments(generator: torch.Generator) -> Tensors:
        turn_T = torch.arange(rows) % 4  # a kept row, the row before, neither, a kept row
        own = _pair_arguments(width, rows, generator)
        own["gate_TD"][0], own["gate_TD"][2::3] = 120.0, 10 * own["gate_TD"][2::3]  # far apart
        return {
            **own,
            "partner_slot_T": torch.where(turn_T == 2, -1, _slots(spec, rows, generator)),
            "partner_row_T": torch.where(turn_T == 1, torch.arange(rows) - 1, -1),
            "state_PRX": torch.randn(_pages_for(rows, 7), 7, 2 * width, generator=generator),
            "latent_TD": poisoned(rows, width, dtype=getattr(torch, dtype)),
        }

    def expect(given: Tensors) -> Tensors:
        none_T = torch.full((rows,), -1)
        _TWIN.compress_pairs(
            given["value_TD"],
            given["gate_TD"],
            none_T,
            given["partner_slot_T"],
            given["partner_row_T"],
            _state(spec, given["state_PRX"]),
            given["latent_TD"],
        )
        return {"latent_TD": given["latent_TD"]}

    def bounds(given: Tensors, expected: Tensors) -> Tensors:
        # Both take the same exponents. Each is off by 4 roundings in either exponential and 4 in
        # products, sum and quotient, of numbers up to the larger value; then by one of the dtype.
        largest = max(given["value_TD"].abs().max(), given["state_PRX"].abs().max()).double()
        final = expected["latent_TD"].double().abs() * roundoff(getattr(torch, dtype))
        return {"latent_TD": 2 * (12 * roundoff(torch.float32) * largest + final)}

    return KernelCase(
        operator="attention_compress_pairs",
        name=f"{width}-{dtype}-rows-{rows}",
        spec=spec,
        arguments=arguments,
        expect=expect,
        bounds=bounds,
        small=rows < _MANY,
        # Half of the rows have a partner in the state.
        moved_bytes=0 if rows < _MANY else (8 + 4 + 2) * rows * width,
    )


def _keep(width: int, dtype: str, rows: int) -> KernelCase:
    spec = _pair_spec(width, dtype)

    def arguments(generator: torch.Generator) -> Tensors:
        return {
            **_pair_arguments(width, rows, generator),
            "slot_T": _slots(spec, rows, generator),
            "state_PRX": torch.randn(_pages_for(rows, 7), 7, 2 * width, generator=generator),
        }

    def expect(given: Tensors) -> Tensors:
        own_TX = torch.cat((given["gate_TD"], given["value_TD"]), -1)
        _TWIN.store(own_TX, given["slot_T"], _state(spec, given["state_PRX"]))
        return {"state_PRX": given["state_PRX"]}

    return KernelCase(
        operator="attention_keep_pairs",
        name=f"{width}-{dtype}-rows-{rows}",
        spec=spec,
        arguments=arguments,
        expect=expect,
        small=rows < _MANY,
        moved_bytes=0 if rows < _MANY else 16 * rows * width,
    )
