"""How do the drafts of a round come to the host?

Shapes: Q sequences of the round, n drafts of each.
"""

from __future__ import annotations

import torch

from deepinfer_core.engine.rows import DraftResult
from deepinfer_core.errors import PluginFailed
from deepinfer_core.interfaces.device import Device
from deepinfer_core.interfaces.drafter import Drafts

__all__ = ["Proposed"]


class Proposed:
    """The drafts of one round.

    Args:
        given: by the drafter.
        count: sequences, without padding.
        vocabulary: number of token ids.
        device: where the round was run.
    """

    def __init__(self, given: Drafts, count: int, vocabulary: int, device: Device) -> None:
        self._count = count
        self._vocabulary = vocabulary
        self._device = device
        self._arrived = [given.token_Qn, given.confidence_Qn, given.raw_Qn]

    def send(self) -> None:
        """Queue their copies to the host; called by work on a stream, behind the round."""
        sent = [None if one is None else _sent(one, self._device) for one in self._arrived]
        self._arrived = sent

    def results(self) -> tuple[DraftResult, ...]:
        """One result a sequence; only after the event behind ``send``.

        Raises:
            PluginFailed: a draft is no token.
        """
        token_Qn, confidence_Qn, raw_Qn = self._arrived
        assert token_Qn is not None
        drafts = [self._leading(row) for row in token_Qn[: self._count].tolist()]
        nothing: list[tuple[float, ...]] = [()] * self._count
        confidences = nothing if confidence_Qn is None else map(tuple, confidence_Qn.tolist())
        raw = nothing if raw_Qn is None else map(tuple, raw_Qn.tolist())
        return tuple(map(DraftResult, drafts, confidences, raw))

    def _leading(self, token_ids: list[int]) -> tuple[int, ...]:
        """The drafts in front of the first that is none."""
        count = next((place for place, token in enumerate(token_ids) if token < 0), len(token_ids))
        drafts = tuple(token_ids[:count])
        if any(token >= self._vocabulary for token in drafts):
            raise PluginFailed(
                f"a drafter gave the drafts {drafts}, found {self._vocabulary} token ids",
                hint="report this to its authors",
            )
        return drafts


def _sent(tensor: torch.Tensor, device: Device) -> torch.Tensor:
    if tensor.device.type == "cpu":
        return tensor
    arrived = device.host_buffer(tuple(tensor.shape), tensor.dtype)
    return arrived.copy_(tensor, non_blocking=True)
