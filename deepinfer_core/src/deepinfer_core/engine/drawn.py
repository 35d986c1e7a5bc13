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
from deepinfer_core.interfaces.sampler import SamplerOutputs, Verdicts

__all__ = ["Drawn"]


class Drawn:
    """The outputs of one call of the sampler.

    Args:
        rows: R.
        alternatives: A.
        device: where the sampler runs.
        is_verified: rows may verify drafts.

    Attributes:
        out: on the device.
        verdicts: on the device; None unless rows may verify drafts.
    """

    def __init__(
        self, rows: int, alternatives: int, device: Device, *, is_verified: bool = False
    ) -> None:
        self._device = device
        self._shape = (rows, alternatives, is_verified)
        size = _nbytes(*self._shape)
        self._bytes = torch.empty(size, dtype=torch.uint8, device=device.torch_device)
        self._arrived = self._bytes
        self.out, self.verdicts = _outputs(self._bytes, *self._shape)

    def send(self) -> None:
        """Queue the copy to the host; called by work on a stream, behind the sampler."""
        if self._bytes.device.type != "cpu":
            self._arrived = self._device.host_buffer(tuple(self._bytes.shape), torch.uint8)
            self._arrived.copy_(self._bytes, non_blocking=True)

    def results(self, rows: tuple[RowRequest, ...]) -> tuple[RowResult, ...]:
        """One result a row; only after the event behind ``send``."""
        out, verdicts = _outputs(self._arrived, *self._shape)
        tokens, invalid = out.token_R.tolist(), out.invalid_R.tolist()
        logprobs, processed = out.logprob_R.tolist(), out.processed_logprob_R.tolist()
        tops: Iterable[tuple[tuple[int, float], ...]] = repeat(())
        if out.top_token_RA.shape[1]:
            listed = out.top_token_RA.tolist(), out.top_logprob_RA.tolist()
            tops = map(_top, rows, *listed)
        columns = (tokens, logprobs, processed, tops, invalid)
        if verdicts is None:
            return tuple(map(RowResult, *columns))
        verdict = verdicts.accepted_R.tolist(), verdicts.overlap_R.tolist()
        return tuple(map(RowResult, *columns, *verdict))


def _nbytes(rows: int, alternatives: int, is_verified: bool) -> int:
    each = 8 + 4 + 4 + 1 + (4 + 1) * is_verified
    return rows * each + rows * alternatives * (8 + 4)


def _outputs(
    memory: torch.Tensor, rows: int, alternatives: int, is_verified: bool
) -> tuple[SamplerOutputs, Verdicts | None]:
    """Views of the memory, widest numbers first, so that each is aligned."""
    many, verified = rows * alternatives, rows * is_verified
    token, top, logprob, processed, top_logprob, overlap, invalid, accepted = (
        memory.split_with_sizes(
            [8 * rows, 8 * many, 4 * rows, 4 * rows, 4 * many, 4 * verified, rows, verified]
        )
    )
    verdicts = None
    if is_verified:
        verdicts = Verdicts(
            accepted_R=accepted.view(torch.bool), overlap_R=overlap.view(torch.float32)
        )
    out = SamplerOutputs(
        token_R=token.view(torch.int64),
        logprob_R=logprob.view(torch.float32),
        processed_logprob_R=processed.view(torch.float32),
        top_token_RA=top.view(torch.int64).view(rows, alternatives),
        top_logprob_RA=top_logprob.view(torch.float32).view(rows, alternatives),
        invalid_R=invalid.view(torch.bool),
    )
    return out, verdicts


def _top(
    row: RowRequest, tokens: list[int], logprobs: list[float]
) -> tuple[tuple[int, float], ...]:
    count = row.settings.alternatives
    return tuple(zip(tokens[:count], logprobs[:count], strict=True)) if count else ()
