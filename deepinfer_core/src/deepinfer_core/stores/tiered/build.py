"""How is a store of tiers made from a configuration?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from deepinfer_core.stores.tiered.store import TieredStore
from deepinfer_core.stores.tiered.tiers import Tier

if TYPE_CHECKING:
    from deepinfer_core.plugin import BuildContext

__all__ = ["build"]


class TierOptions(Protocol):
    """One tier of a configuration."""

    @property
    def use(self) -> str:
        """Name of its component."""

    @property
    def groups(self) -> Sequence[str]:
        """Names of the groups that it takes; empty: all that it may."""


class TieredOptions(Protocol):
    """What the configuration says; see ``config.store_options``."""

    @property
    def tiers(self) -> Sequence[TierOptions]:
        """The fastest one first."""

    @property
    def pending_bytes(self) -> int:
        """Of blocks that wait to be moved into one tier."""

    @property
    def close_s(self) -> float:
        """How long closing waits for them."""


def build(options: TieredOptions, context: BuildContext) -> TieredStore:
    """Build the component of its parts, which are opened with it."""
    tiers = [
        Tier(name=entry.use, store=store, groups=tuple(entry.groups))
        for entry, store in zip(options.tiers, context.parts, strict=True)
    ]
    return TieredStore(tiers, pending_bytes=options.pending_bytes, close_s=options.close_s)
