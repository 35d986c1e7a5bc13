"""How is a store of many children made from a configuration?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from deepinfer_core.stores.erasure.codec import Codec, NumpyCodec
from deepinfer_core.stores.erasure.gathering import Patience
from deepinfer_core.stores.erasure.isal import IsalCodec
from deepinfer_core.stores.erasure.store import ErasureStore

if TYPE_CHECKING:
    from deepinfer_core.plugin import BuildContext

__all__ = ["build"]

_CODECS: dict[str, type[Codec]] = {"isal": IsalCodec, "numpy": NumpyCodec}


class ChildOptions(Protocol):
    """One child of a configuration."""

    @property
    def use(self) -> str:
        """Name of its component."""


class ErasureOptions(Protocol):
    """What the configuration says; see ``config.store_options``."""

    @property
    def children(self) -> Sequence[ChildOptions]:
        """As many as there are pieces."""

    @property
    def data(self) -> int:
        """Pieces of data, k."""

    @property
    def parity(self) -> int:
        """Pieces beside them, m."""

    @property
    def spare(self) -> int:
        """Children that a read asks at first beyond the k that it needs."""

    @property
    def codec(self) -> str:
        """What computes pieces."""

    @property
    def hedge_s(self) -> float:
        """At most, before another child is asked in place of one that is late."""

    @property
    def hung_s(self) -> float:
        """Before a child counts as unavailable."""

    @property
    def repair_bytes_per_s(self) -> float:
        """That repairs may read and write."""

    @property
    def scrub_bytes_per_s(self) -> float:
        """That is read to find damage."""


def build(options: ErasureOptions, context: BuildContext) -> ErasureStore:
    """Build the component of its parts, which are opened with it."""
    stores = [
        (f"child {number} ({entry.use})", store)
        for number, (entry, store) in enumerate(zip(options.children, context.parts, strict=True))
    ]
    return ErasureStore(
        stores,
        _CODECS[options.codec](options.data, options.parity),
        patience=Patience(hedge_s=options.hedge_s, most_s=options.hung_s),
        repair_bytes_per_s=options.repair_bytes_per_s,
        scrub_bytes_per_s=options.scrub_bytes_per_s,
        spare=options.spare,
    )
