"""What may the core's own stores of blocks keep, where, and for how long?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from deepinfer_core.config.components import Section
from deepinfer_core.interfaces.kv_store import check_word

__all__ = [
    "DiskStoreOptions",
    "ErasureStoreOptions",
    "MemoryStoreOptions",
    "PartSettings",
    "PeersStoreOptions",
    "StoreOptions",
    "TierSettings",
    "TieredStoreOptions",
    "with_own_classes",
]

_GIB = 1 << 30

_MOST_PIECES = 255
"""Rows of a code over bytes; see ``stores.erasure.field``."""

RETENTION_S: dict[str, float] = {"agent": 3 * 86400.0, "chat": 7 * 86400.0, "state": 180.0}
"""Chats are taken up again after days, agents seldom; a state is of use for minutes."""

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def with_own_classes(retention_s: Mapping[str, float]) -> Mapping[str, float]:
    """Classes that are given, beside those that every store has.

    Raises:
        ValueError: one has a name that no request could have.
    """
    for name in retention_s:
        check_word("a class", name)
    return {**RETENTION_S, **retention_s}


class StoreOptions(Section):
    """Options of every store of the core.

    Attributes:
        capacity_bytes: that blocks may take, headers included.
        quota_bytes: that blocks of one namespace may take; 0: no limit of its own.
        retention_s: seconds behind its last use after which a block expires, by retention class;
            joins the classes ``agent``, ``chat`` and ``state``.
        young_s: for so long a new block makes no room for others.
        high_ratio: share of the capacity above which a sweep makes room.
        low_ratio: share of the capacity that is taken when room has been made.
    """

    capacity_bytes: int = Field(default=4 * _GIB, ge=1)
    quota_bytes: int = Field(default=0, ge=0)
    retention_s: Mapping[str, Seconds] = Field(default=RETENTION_S)
    young_s: float = Field(default=60.0, ge=0, allow_inf_nan=False)
    high_ratio: float = Field(default=0.90, gt=0, le=1)
    low_ratio: float = Field(default=0.85, gt=0, le=1)

    @field_validator("retention_s")
    @classmethod
    def _own_classes_join(cls, value: Mapping[str, float]) -> Mapping[str, float]:
        return with_own_classes(value)

    @model_validator(mode="after")
    def _marks_are_in_order(self) -> Self:
        if self.low_ratio > self.high_ratio:
            raise ValueError(f"low_ratio is {self.low_ratio}, above high_ratio {self.high_ratio}")
        return self


class MemoryStoreOptions(StoreOptions):
    """Options of kv_store ``core.memory``."""


class DiskStoreOptions(StoreOptions):
    """Options of kv_store ``core.disk``.

    Attributes:
        folder: where blocks are kept; of this store alone.
        writes: whether this process is the one that writes; all others read.
        durable: whether blocks are on the disk before they can be found. Without it the end of a
            process loses none either, but a power cut may lose the store.
    """

    folder: str = Field(min_length=1)
    capacity_bytes: int = Field(default=64 * _GIB, ge=1)
    writes: bool = True
    durable: bool = True


class PartSettings(Section):
    """Choice of a store that another one is made of.

    Attributes:
        use: name of the component.
        options: its options.
    """

    use: str
    options: dict[str, Any] = Field(default_factory=dict)

    @field_validator("use")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if value in ("", "auto", "none"):
            raise ValueError("expected the name of a component")
        return value


class TierSettings(PartSettings):
    """One tier of ``core.tiered``.

    Attributes:
        use: name of the component.
        options: its options.
        groups: names of the groups that it takes; empty: all that it may.
    """

    groups: tuple[str, ...] = ()


class TieredStoreOptions(Section):
    """Options of kv_store ``core.tiered``.

    Attributes:
        tiers: the fastest one first.
        pending_bytes: of blocks that wait to be moved into one tier; more are not.
        close_s: how long closing waits for them.
    """

    tiers: tuple[TierSettings, ...] = Field(max_length=8)
    pending_bytes: int = Field(default=_GIB, ge=1)
    close_s: float = Field(default=10.0, ge=0, allow_inf_nan=False)

    @field_validator("tiers")
    @classmethod
    def _is_more_than_one(cls, value: tuple[TierSettings, ...]) -> tuple[TierSettings, ...]:
        if not value:
            raise ValueError("expected two tiers or more, found none; list stores, fastest first")
        if len(value) == 1:
            raise ValueError(
                "expected two tiers or more, found 1; add a slower one behind it, or name"
                f" {value[0].use} itself in components.kv_store.use"
            )
        return value


class PeersStoreOptions(StoreOptions):
    """Options of kv_store ``core.peers``.

    Attributes:
        name: ``host:port`` by which the others reach this member.
        members: names of all members, the same list on every machine.
        secret_file: file with the secret that all know; needed unless all are on this machine.
        listen: ``host:port`` to bind, if that is not ``name``.
        call_s: seconds after which a member that does not answer is passed over.
        beat_s: seconds between two announcements of everything that a member has.
    """

    name: str
    members: tuple[str, ...] = Field(min_length=1, max_length=256)
    secret_file: str = ""
    listen: str = ""
    call_s: float = Field(default=0.02, gt=0, allow_inf_nan=False)
    beat_s: float = Field(default=10.0, gt=0, allow_inf_nan=False)


class ErasureStoreOptions(Section):
    """Options of kv_store ``core.erasure``.

    Attributes:
        children: as many as there are pieces.
        data: pieces of data of each block, k.
        parity: pieces beside them, m; so many children may be lost.
        spare: children that a read asks at first beyond the k that it needs, up to m.
        codec: what computes pieces: ISA-L, or numpy, which is slow and needs nothing.
        hedge_s: at most, before another child is asked in place of one that is late.
        hung_s: before a child counts as unavailable.
        repair_bytes_per_s: that repairs may read and write.
        scrub_bytes_per_s: that is read to find damage that nobody has met; 0: nothing.
    """

    children: tuple[PartSettings, ...]
    data: int = Field(default=10, ge=1)
    parity: int = Field(default=2, ge=1)
    spare: int = Field(default=1, ge=0)
    codec: Literal["isal", "numpy"] = "isal"
    hedge_s: Seconds = 0.05
    hung_s: Seconds = 10.0
    repair_bytes_per_s: float = Field(default=64e6, gt=0, allow_inf_nan=False)
    scrub_bytes_per_s: float = Field(default=16e6, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _every_piece_has_a_child(self) -> Self:
        pieces = self.data + self.parity
        if pieces > _MOST_PIECES:
            raise ValueError(f"data + parity is at most {_MOST_PIECES}, found {pieces}")
        if self.spare > self.parity:
            raise ValueError(f"spare is at most parity, {self.parity}, found {self.spare}")
        if len(self.children) != pieces:
            raise ValueError(
                f"{self.data} + {self.parity} pieces need {pieces} children,"
                f" found {len(self.children)}; list so many, or set data and parity"
            )
        return self
