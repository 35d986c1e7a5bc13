"""Which options do the components of this distribution take?"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["CudaOptions"]


class CudaOptions(BaseModel):
    """Options of ``nvidia.cuda``.

    Attributes:
        index: number of the device among those that this process may use.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    index: int = Field(default=0, ge=0)
