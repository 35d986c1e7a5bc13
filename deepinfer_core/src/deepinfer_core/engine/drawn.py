"""How do the sampler's outputs come to the host?

All of them lie in one tensor of bytes, so that one copy brings them; it is queued behind the
sampler, and nobody looks before the event behind it.

Shapes: R rows, A alternatives.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat

import torch

from deepinfer_core.engine.rows import RowRequest, RowResult
from deepinfer_core.interfaces.device import Device
from deepinfer_core.interfaces.sampler import SamplerOutputs

__all__ = ["Drawn"]


class Drawn:
    """The outputs of one call of the sampler.

    Args:
        rows: R.
        alternatives: A.
        device: where the sampler runs.

    Attributes:
        out: on the device.
    """

    def __init__(self, rows: int, alternatives: int, device: Device) -> None:
        self._device = device
        self._shape = (rows, alternatives)
        size = _nbytes(rows, alternatives)
        self._bytes = torch.empty(size, dtype=torch.uint8, device=device.torch_device)
        self._arrived = self._bytes
        self.out = _outputs(self._bytes, rows, alternatives)

    def send(self) -> None:
        """Queue the copy to the host; called by work on a stream, behind the sampler."""
        if self._bytes.device.type != "cpu":
            self._arrived = self._device.host_buffer(tuple(self._bytes.shape), torch.uint8)
            self._arrived.copy_(self._bytes, non_blocking=True)

    def results(self, rows: tuple[RowRequest, ...]) -> tuple[RowResult, ...]:
        """One result a row; only after the event behind ``send``."""
        out = self.out if self._arrived is self._bytes else _outputs(self._arrived, *self._shape)
        tokens, invalid = out.token_R.tolist(), out.invalid_R.tolist()
        logprobs, processed = out.logprob_R.tolist(), out.processed_logprob_R.tolist()
        tops: Iterable[tuple[tuple[int, float], ...]] = repeat(())
        if out.top_token_RA.shape[1]:
            listed = out.top_token_RA.tolist(), out.top_logprob_RA.tolist()
            tops = map(_top, rows, *listed)
        return tuple(map(RowResult, tokens, logprobs, processed, tops, invalid))


def _nbytes(rows: int, alternatives: int) -> int:
    return rows * (8 + 4 + 4 + 1) + rows * alternatives * (8 + 4)


def _outputs(memory: torch.Tensor, rows: int, alternatives: int) -> SamplerOutputs:
    """Views of the memory, widest numbers first, so that each is aligned."""
    many = rows * alternatives
    token, top, logprob, processed, top_logprob, invalid = memory.split_with_sizes(
        [8 * rows, 8 * many, 4 * rows, 4 * rows, 4 * many, rows]
    )
    return SamplerOutputs(
        token_R=token.view(torch.int64),
        logprob_R=logprob.view(torch.float32),
        processed_logprob_R=processed.view(torch.float32),
        top_token_RA=top.view(torch.int64).view(rows, alternatives),
        top_logprob_RA=top_logprob.view(torch.float32).view(rows, alternatives),
        invalid_R=invalid.view(torch.bool),
    )


def _top(
    row: RowRequest, tokens: list[int], logprobs: list[float]
) -> tuple[tuple[int, float], ...]:
    count = row.settings.alternatives
    return tuple(zip(tokens[:count], logprobs[:count], strict=True)) if count else ()
