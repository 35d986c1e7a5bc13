"""How do the drafts of a step, and the round behind it, become tensors?

Shapes: R sampled rows, Q sequences of the round, a power of two, P rows of laws, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from deepinfer_core.engine.parcel import Parcel
from deepinfer_core.engine.rows import DraftRequest, RowRequest, RowSettings
from deepinfer_core.engine.sampler_inputs import PackedRows, SamplerInputs
from deepinfer_core.interfaces.device import Device
from deepinfer_core.interfaces.sampler import DraftedRows

__all__ = ["PackedDrafts", "PackedRound"]

_PADDING = DraftRequest(
    place=0, first=0, rows=1, start=0, state_slot=0, valid_start=0, settings=RowSettings()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRound:
    """Who is drafted for, on the device; the fields are those of ``DraftRequest``.

    Attributes:
        drafts_Q: drafts that the step verifies of each; one less than rows.
        most_drafts: the largest of them.
    """

    place_Q: torch.Tensor
    first_Q: torch.Tensor
    drafts_Q: torch.Tensor
    start_Q: torch.Tensor
    state_slot_Q: torch.Tensor
    valid_start_Q: torch.Tensor
    most_drafts: int


class PackedDrafts:
    """The drafts of one step, on the host.

    Args:
        rows: that are sampled, at least one.
        wanted: who is drafted for.
        settings: packs how drafts are drawn; None: nobody draws.
        device: where they go.

    Attributes:
        count: sequences of the round, without padding.
        verifies: some row has a draft.
        settings: how drafts are drawn; None: they are not, or there is no round.
    """

    def __init__(
        self,
        rows: tuple[RowRequest, ...],
        wanted: tuple[DraftRequest, ...],
        settings: SamplerInputs | None,
        device: Device,
    ) -> None:
        self.count = len(wanted)
        self.verifies = any(row.draft >= 0 for row in rows)
        self.settings: PackedRows | None = None
        drafted_2R = np.array([[row.draft for row in rows], [row.law_row for row in rows]])
        arrays = [drafted_2R.astype(np.int64)]
        if wanted:
            size = 1 << (len(wanted) - 1).bit_length()
            padded = (*wanted, *[_PADDING] * (size - len(wanted)))
            self._most_drafts = max(one.rows - 1 for one in wanted)
            numbers = [
                (one.place, one.first, one.rows - 1, one.start, one.state_slot, one.valid_start)
                for one in padded
            ]
            arrays.append(np.array(numbers, dtype=np.int64).T)
            if settings is not None:
                drawn = [RowRequest(0, 0, one.settings, None, one.banned) for one in padded]
                self.settings = settings.rows(tuple(drawn))
        self._parcel = Parcel(arrays, device)

    @cached_property
    def _parts(self) -> list[torch.Tensor]:
        """On the device; first asked for by work on a stream."""
        return self._parcel.arrive()

    def drafted(self, law_PV: torch.Tensor | None) -> DraftedRows:
        """What each row verifies; called by work on a stream."""
        draft_R, law_row_R = self._parts[0].unbind()
        return DraftedRows(draft_R=draft_R, law_row_R=law_row_R, law_PV=law_PV)

    @property
    def round(self) -> PackedRound:
        """Who is drafted for; called by work on a stream, and there is somebody."""
        place_Q, first_Q, drafts_Q, start_Q, state_slot_Q, valid_start_Q = self._parts[1].unbind()
        return PackedRound(
            place_Q=place_Q,
            first_Q=first_Q,
            drafts_Q=drafts_Q,
            start_Q=start_Q,
            state_slot_Q=state_slot_Q,
            valid_start_Q=valid_start_Q,
            most_drafts=self._most_drafts,
        )
