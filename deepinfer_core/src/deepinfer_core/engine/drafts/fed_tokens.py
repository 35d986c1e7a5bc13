"""How does the device come to know all tokens of a sequence?

By what is fed: every row's token is kept at its position, drafts included, which later rows
overwrite. What is cached is not fed and comes with the step that a sequence enters with.

Shapes: T rows, Q sequences, N tokens of prefixes, S places, L longest text.
"""

from __future__ import annotations

import numpy as np
import torch

from deepinfer_core.engine.parcel import Parcel
from deepinfer_core.interfaces.device import Device
from deepinfer_core.model.step import StepInputs
from deepinfer_core.schedule.plan import StepPlan

__all__ = ["FedTokens"]


class FedTokens:
    """The tokens of one step, on the host.

    Args:
        plan: the step.
        device: where they go.
    """

    def __init__(self, plan: StepPlan, device: Device) -> None:
        self._rows = plan.rows
        place_Q = np.array([step.place for step in plan.sequences], dtype=np.int64)
        lengths = [len(prefix.token_ids) for prefix in plan.prefixes]
        prefix_3N = np.zeros((3, sum(lengths)), dtype=np.int64)
        end = 0
        for (place, token_ids), length in zip(plan.prefixes, lengths, strict=True):
            prefix_3N[0, end : end + length] = place
            prefix_3N[1, end : end + length] = np.arange(length)
            prefix_3N[2, end : end + length] = token_ids
            end += length
        self._parcel = Parcel([place_Q, prefix_3N], device)

    def keep(self, inputs: StepInputs, token_SL: torch.Tensor) -> None:
        """Put them into the table; called by work on a stream, once.

        Args:
            inputs: of the step, settled.
            token_SL: int64 tokens by place and position.
        """
        place_Q, prefix_3N = self._parcel.arrive()
        place_N, position_N, token_N = prefix_3N.unbind()
        token_SL[place_N, position_N] = token_N
        place_T = place_Q[inputs.sequence_T[: self._rows]]
        token_SL[place_T, inputs.position_T[: self._rows]] = inputs.token_T[: self._rows]
