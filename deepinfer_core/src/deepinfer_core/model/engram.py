"""How does the n-gram memory add to the residual streams?

Tables stay in host memory in the form in which the checkpoint stores them, where the device can
read them; a step gathers the rows it needs and widens only those. Which rows these are depends on
token ids alone, so they are looked up for all Engram layers before the first layer runs.

Shapes: T rows, S streams, D hidden width, C hash columns, N lookback distances.
"""

from dataclasses import dataclass

import torch

from deepinfer_core.interfaces.transform import EngramHash
from deepinfer_core.model.operators import Linear
from deepinfer_core.model.row_operators import RowOperators
from deepinfer_core.numeric import QuantTensor

__all__ = ["Engram", "gather_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Engram:
    """The memory of one layer.

    Attributes:
        rows: row operators.
        table: all sub-tables, within reach of the device.
        hashing: multipliers and sub-tables, on the device of the ids.
        project: looked-up rows, side by side, to one key a stream and one value.
        query_weight_SD: weight of each stream's norm.
        key_weight_SD: weight of each key's norm.
    """

    rows: RowOperators
    table: QuantTensor
    hashing: EngramHash
    project: Linear
    query_weight_SD: torch.Tensor
    key_weight_SD: torch.Tensor

    def look_up(self, compressed_TN: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Fetch each row's n-grams.

        Args:
            compressed_TN: int64 compressed ids at distance 0, 1, .. before each row.

        Returns:
            Table rows int64 [T, C], and what they hold, [T, C * width] in the compute dtype.
        """
        row_TC = self.rows.engram_rows(compressed_TN, self.hashing)
        return row_TC, gather_rows(self.table, row_TC, self.rows.compute).flatten(1)

    def inject(
        self, trunk_TSD: torch.Tensor, memory_TK: torch.Tensor, image_T: torch.Tensor
    ) -> None:
        """Add the gated value to every stream in place; image rows stay as they are."""
        streams, width = trunk_TSD.shape[1:]
        projected_TSD = self.project(memory_TK).view(-1, streams + 1, width)
        self.rows.engram_gate(
            trunk_TSD,
            projected_TSD[:, :streams],
            projected_TSD[:, streams],
            self.query_weight_SD,
            self.key_weight_SD,
            image_T,
        )


def gather_rows(table: QuantTensor, index: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Read rows of a matrix that is stored with scales a row, or plain.

    Args:
        table: [rows, width] in a format with row scales, or plain.
        index: int64 row numbers of any shape, on the table's device.
        dtype: of the result; exact for every quantised format.

    Returns:
        [..., width], on the table's device.
    """
    flat_R = index.flatten()
    gathered = QuantTensor(
        data=_rows_of(table.data, flat_R),
        scale=None if table.scale is None else _rows_of(table.scale, flat_R),
        format=table.format,
    )
    return gathered.dequantise(dtype).view(*index.shape, table.shape[1])


def _rows_of(matrix: torch.Tensor, index_R: torch.Tensor) -> torch.Tensor:
    # Bytes can be indexed on every device, 8-bit floats cannot.
    stored = matrix if matrix.itemsize > 1 else matrix.view(torch.uint8)
    return stored.index_select(0, index_R).view(matrix.dtype)
