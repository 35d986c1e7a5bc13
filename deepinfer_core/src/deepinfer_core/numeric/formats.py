"""Which number formats exist, what do they store, and how many bytes does a row take?

| name | data | one scale for | scale | used for |
|---|---|---|---|---|
| ``mxfp8`` | e4m3 | 32 channels of a row | ue8m0 | activations, window keys, Engram tables |
| ``mxfp4`` | e2m1, two a byte | 32 channels of a row | ue8m0 | routed experts, index keys |
| ``fp4_e4m3x16`` | e2m1, two a byte | 16 channels of a row | e4m3 | compressed entries |
| ``fp8_32x32`` | e4m3 | a block of 32 x 32 | ue8m0 | dense weights |
| ``bfloat16`` ``float32`` ``float64`` | themselves | - | - | everything else; lossless caches |

The names are part of the interfaces: components declare which of them they take. Activations at
operator seams are ``mxfp8`` too; kernel documentation calls that form "1 x 32".
"""

from dataclasses import dataclass
from typing import Literal

import torch

from deepinfer_core.errors import NotSupported

__all__ = ["FORMATS", "NumberFormat", "number_format"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberFormat:
    """One way of storing a matrix.

    Attributes:
        name: key in ``FORMATS``.
        storage: dtype of the data tensor.
        values_per_element: how many values one element of the data tensor holds (2 if packed).
        group_rows: rows that share a scale; 0 when there are no scales.
        group_columns: columns that share a scale; 0 when there are no scales.
        scale: what a scale byte is, or None.
    """

    name: str
    storage: torch.dtype
    values_per_element: int = 1
    group_rows: int = 0
    group_columns: int = 0
    scale: Literal["ue8m0", "e4m3"] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the data are the values themselves."""
        return self.scale is None

    @property
    def has_row_scales(self) -> bool:
        """Whether every row can be encoded on its own, which a cache needs."""
        return self.group_rows <= 1

    def data_bytes(self, width: int) -> int:
        """Bytes of the data of one row of ``width`` values."""
        self.check_width(width)
        return width // self.values_per_element * self.storage.itemsize

    def scale_bytes(self, width: int) -> int:
        """Bytes of the scales of one row; 0 for plain formats."""
        self.check_width(width)
        if not self.has_row_scales:
            raise NotSupported(
                f"asked for the scales of one row in {self.name}, found scales shared by"
                f" {self.group_rows} rows",
                hint="rows are stored as mxfp8, mxfp4, fp4_e4m3x16 or a plain format",
            )
        return width // self.group_columns if self.scale else 0

    def row_bytes(self, width: int) -> int:
        """Bytes of one row laid out as [data | scales]."""
        return self.data_bytes(width) + self.scale_bytes(width)

    def check_width(self, width: int) -> None:
        """Refuse a row that does not consist of whole groups (blocks of 32 x 32 may be ragged).

        Raises:
            NotSupported: the width is not a multiple of the group.
        """
        group = self.group_columns if self.has_row_scales and self.scale else 1
        if width % group:
            raise NotSupported(
                f"asked for {self.name} rows of width {width}, found groups of {group} channels",
                hint=f"use a width that is a multiple of {group}, or a plain format",
            )


_E4M3 = torch.float8_e4m3fn

FORMATS: dict[str, NumberFormat] = {
    form.name: form
    for form in (
        NumberFormat(name="mxfp8", storage=_E4M3, group_rows=1, group_columns=32, scale="ue8m0"),
        NumberFormat(
            name="mxfp4",
            storage=torch.uint8,
            values_per_element=2,
            group_rows=1,
            group_columns=32,
            scale="ue8m0",
        ),
        NumberFormat(
            name="fp4_e4m3x16",
            storage=torch.uint8,
            values_per_element=2,
            group_rows=1,
            group_columns=16,
            scale="e4m3",
        ),
        NumberFormat(
            name="fp8_32x32", storage=_E4M3, group_rows=32, group_columns=32, scale="ue8m0"
        ),
        NumberFormat(name="bfloat16", storage=torch.bfloat16),
        NumberFormat(name="float32", storage=torch.float32),
        NumberFormat(name="float64", storage=torch.float64),
    )
}


def number_format(name: str) -> NumberFormat:
    """Look a format up by its name.

    Raises:
        NotSupported: there is no such format.
    """
    if name not in FORMATS:
        raise NotSupported(
            f"asked for the number format {name!r}, found {', '.join(FORMATS)}",
            hint="use one of the names listed",
        )
    return FORMATS[name]
