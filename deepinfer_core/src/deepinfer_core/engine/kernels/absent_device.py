"""What stands in for a device that this machine does not have?

Tensors of the absent device have shapes and no numbers: whoever reads one fails, and so does
whoever mixes them with tensors of the host. Work on it allocates nothing and takes the host's time
only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from deepinfer_core.interfaces.component import Plan, Properties
from deepinfer_core.interfaces.device import Device, DeviceMemory, InlineStream, Stream
from deepinfer_core.numeric import row_bytes

__all__ = ["AbsentDevice", "Idle"]


class AbsentDevice(Device):
    """A device whose memory holds nothing."""

    @property
    def properties(self) -> Properties:
        """The promises of this component."""
        return Properties(batch_invariant="always", deterministic="always", graph_safe="always")

    @property
    def torch_device(self) -> torch.device:
        """Where tensors live."""
        return torch.device("meta")

    @property
    def collectives_backend(self) -> str:
        """Nothing is ever sent."""
        return "gloo"

    def facts(self) -> Mapping[str, str | int | float | bool]:
        """That it is not there."""
        return {"model": "absent"}

    def memory(self) -> DeviceMemory:
        """As much as anybody wants."""
        return DeviceMemory(total_bytes=1 << 50, free_bytes=1 << 50)

    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A shape."""
        return torch.zeros(shape, dtype=dtype, device="meta")

    def host_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Ordinary memory; there is no other without a device."""
        return torch.empty(shape, dtype=dtype)

    def stream(self) -> Stream:
        """A stream that does everything at once."""
        return InlineStream()

    def synchronise(self) -> None:
        """Nothing is ever under way."""

    def peak_flops(self, number_format: str) -> float | None:
        """Not known."""
        return None


class Idle:
    """A component of any kind that plans, and leaves its outputs as they are."""

    def __getattr__(self, name: str) -> Any:
        """An operator: a plan for ``plan*``, the weight itself for ``prepare*``, else nothing."""
        if name == "row_bytes":
            return row_bytes
        if name.startswith("plan"):
            return lambda spec, max_rows: Plan(max_rows=max_rows)
        if name.startswith("prepare"):
            return lambda weight: weight
        return lambda *arguments, **options: None
