"""How are the pieces of a block computed, and the block from some of them?

Both codecs compute the same pieces, so what one wrote the other reads. ``IsalCodec`` calls ISA-L
(``isal``); ``NumpyCodec`` is the same in numpy, slow and obvious: what the other is tested against,
and for machines without the library whose users say so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepinfer_core.stores.erasure.field import PRODUCTS, Bytes, generator_matrix, recovery

__all__ = ["Codec", "NumpyCodec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recipe:
    """How data comes from certain pieces.

    Attributes:
        sources: rows of those pieces.
        made: numbers of the pieces of data that are computed.
        coefficients: of the sources, [made, k], in the form of the codec.
        copied: runs of pieces of data that are there: number of the first, its row, how many.
    """

    sources: tuple[int, ...]
    made: tuple[int, ...]
    coefficients: Any
    copied: tuple[tuple[int, int, int], ...]


class Codec(ABC):
    """Computes pieces; from any number of threads.

    Args:
        data: pieces of data, k.
        parity: pieces beside them, m.
    """

    def __init__(self, data: int, parity: int) -> None:
        self.data, self.parity = data, parity
        self._generator = generator_matrix(data, parity)
        self._recipes: dict[tuple[tuple[int, int], ...], _Recipe] = {}
        self._parity_rows = self._prepare(self._generator[data:])

    def encode(self, pieces_NF: Bytes) -> None:
        """Compute parity.

        Args:
            pieces_NF: a row for each piece, its bytes in a row; the first k are read, the others
                written.
        """
        made = range(self.data, self.data + self.parity)
        self._combine(self._parity_rows, pieces_NF, range(self.data), pieces_NF, made)

    def decode(self, pieces_RF: Bytes, rows: Mapping[int, int], data_KF: Bytes) -> bool:
        """Bring data together, from k pieces.

        Args:
            pieces_RF: pieces, a row each.
            rows: row of each of k pieces by its number.
            data_KF: written.

        Returns:
            Whether anything was computed; otherwise all of it was there.
        """
        key = tuple(sorted(rows.items()))
        recipe = self._recipes.get(key) or self._recipe(key)
        for number, row, count in recipe.copied:
            data_KF[number : number + count] = pieces_RF[row : row + count]
        if recipe.made:
            self._combine(recipe.coefficients, pieces_RF, recipe.sources, data_KF, recipe.made)
        return bool(recipe.made)

    def _recipe(self, key: tuple[tuple[int, int], ...]) -> _Recipe:
        present = [number for number, _ in key]
        made = tuple(number for number in range(self.data) if number not in present)
        runs: list[tuple[int, int, int]] = []
        for number, row in key:
            if number >= self.data:
                continue
            if runs and (number, row) == (runs[-1][0] + runs[-1][2], runs[-1][1] + runs[-1][2]):
                runs[-1] = (*runs[-1][:2], runs[-1][2] + 1)
            else:
                runs.append((number, row, 1))
        recipe = _Recipe(
            sources=tuple(row for _, row in key),
            made=made,
            coefficients=self._prepare(recovery(self._generator, present, made)) if made else None,
            copied=tuple(runs),
        )
        self._recipes[key] = recipe
        return recipe

    @abstractmethod
    def _prepare(self, rows_MK: Bytes) -> Any:
        """Coefficients in the form that ``_combine`` takes."""

    @abstractmethod
    def _combine(
        self,
        coefficients: Any,
        pieces_RF: Bytes,
        sources: Sequence[int],
        into_RF: Bytes,
        made: Sequence[int],
    ) -> None:
        """Write rows ``made`` as sums of products of rows ``sources``."""


class NumpyCodec(Codec):
    """By tables of products."""

    def _prepare(self, rows_MK: Bytes) -> Bytes:
        return rows_MK

    def _combine(
        self,
        coefficients: Bytes,
        pieces_RF: Bytes,
        sources: Sequence[int],
        into_RF: Bytes,
        made: Sequence[int],
    ) -> None:
        for row, factors in zip(made, coefficients, strict=True):
            total = np.zeros(pieces_RF.shape[1], np.uint8)
            for source, factor in zip(sources, factors, strict=True):
                total ^= PRODUCTS[factor][pieces_RF[source]]
            into_RF[row] = total
