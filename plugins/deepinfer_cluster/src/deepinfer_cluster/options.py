"""What can be set about the stores? ``components.kv_store.options`` of a configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from deepinfer_core.config.store_options import RETENTION_S, Seconds, with_own_classes
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

__all__ = ["MooncakeOptions"]


_FORMS = {
    "master": (r"[^\s:/]+:\d{1,5}", "HOST:PORT, such as 10.0.0.1:50051"),
    "admin_url": (r"https?://[^\s/]+", "http://HOST:PORT without a path"),
    "pool": (r"[a-z0-9_]{1,32}", "1 to 32 of the characters a-z, 0-9 and _"),
}


class MooncakeOptions(BaseModel):
    """Options of kv_store ``cluster.mooncake``.

    Attributes:
        master: ``host:port`` of the pool's master.
        admin_url: of the master's administration, such as ``http://10.0.0.1:9003``.
        pool: first part of the names of all blocks there; deployments that share a master without
            sharing blocks have different ones.
        metadata: where nodes are described: ``P2PHANDSHAKE``, they describe themselves, or the
            address of a metadata server. The nodes must have the same.
        protocol: what blocks travel by.
        devices: network devices, separated by commas; empty: all that fit.
        host: address of this machine for others; empty: the one that it reaches the master from.
        replicas: copies of each block, on different nodes.
        retention_s: seconds behind its storing after which a block is no longer handed out, by
            retention class; joins the classes ``agent``, ``chat`` and ``state``.
        sweeps: whether this process removes what has expired; one of all has to.
        lanes: calls in flight.
        lane_bytes: registered memory of each; the longest block, and one call, fit into it.
        retry_s: seconds after which what did not answer is tried again, beside all calls.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    master: str
    admin_url: str
    pool: str = "deepinfer"
    metadata: str = Field(default="P2PHANDSHAKE", min_length=1)
    protocol: Literal["tcp", "rdma"] = "tcp"
    devices: str = ""
    host: str = ""
    replicas: int = Field(default=1, ge=1, le=16)
    retention_s: Mapping[str, Seconds] = Field(default=RETENTION_S)
    sweeps: bool = True
    lanes: int = Field(default=4, ge=1, le=64)
    lane_bytes: int = Field(default=8 << 20, ge=4096, multiple_of=4096)
    retry_s: Seconds = 2.0

    @field_validator("retention_s")
    @classmethod
    def _own_classes_join(cls, value: Mapping[str, float]) -> Mapping[str, float]:
        return with_own_classes(value)

    @field_validator("master", "admin_url", "pool")
    @classmethod
    def _has_its_form(cls, value: str, info: ValidationInfo) -> str:
        pattern, form = _FORMS[info.field_name or ""]
        if not re.fullmatch(pattern, value):
            raise ValueError(f"expected {form}")
        return value
