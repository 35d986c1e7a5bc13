"""How does code run for a device that this machine does not have?

With components that plan and do nothing. That shows whether the model and the runner leave
everything on the device, for a device that is not the host.
"""

from __future__ import annotations

from typing import Any

from deepinfer_core.engine.kernels.absent_device import AbsentDevice, Idle
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.reference.all_to_all import LocalExchange

__all__ = ["absent_parts"]


def absent_parts(numerics: Numerics) -> ModelParts:
    """Idle components on the absent device, with the exchange of one process."""
    idle: Any = Idle()
    return ModelParts(
        device=AbsentDevice(),
        prefill=idle,
        decode=idle,
        indexer=idle,
        codec=idle,
        dense=idle,
        grouped=idle,
        transform=idle,
        all_to_all=LocalExchange(),
        numerics=numerics,
    )
