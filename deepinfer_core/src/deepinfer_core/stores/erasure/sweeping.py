"""What is done once a minute, and in which order?

Children hear what was used and sweep; blocks that one of them let go go as a whole; missing
fragments are looked for, and what is known to lack some is made whole. What time is left belongs to
the search for damage, which is mended by the next sweep.
"""

from __future__ import annotations

from deepinfer_core.errors import ConfigError
from deepinfer_core.stores.calls import Tally
from deepinfer_core.stores.erasure.child import Child
from deepinfer_core.stores.erasure.crowd import ask_all, numbers, ranked
from deepinfer_core.stores.erasure.departing import Departures
from deepinfer_core.stores.erasure.fragments import fragment_groups
from deepinfer_core.stores.erasure.means import Means
from deepinfer_core.stores.erasure.mending import Mender
from deepinfer_core.stores.erasure.scrubbing import Scrub

__all__ = ["Sweeps"]


class Sweeps:
    """Looks after a store while it is open.

    Args:
        means: of the store.
        tally: counts what goes.
        repair_bytes_per_s: that repairs may read and write.
        scrub_bytes_per_s: that a scrub may read.

    Attributes:
        departures: lets blocks go as a whole.
    """

    def __init__(
        self, means: Means, tally: Tally, repair_bytes_per_s: float, scrub_bytes_per_s: float
    ) -> None:
        self._means = means
        self.departures = Departures(means, tally)
        self._scrub = Scrub(means, scrub_bytes_per_s)
        self._mender = Mender(means, repair_bytes_per_s)

    def sweep(self, deadline_s: float) -> int:
        """Do all that; how many blocks were removed."""
        means = self._means
        found = ask_all(
            means.children,
            "sweep",
            1,
            lambda child: self._sweep_child(child, deadline_s),
            means.patience.soon(),
        )
        swept = {number for number, removed in found.items() if isinstance(removed, int)}
        followed = self.departures.follow(swept, deadline_s)
        self._scrub.look(deadline_s)
        self._mender.mend(deadline_s)
        self._scrub.read(deadline_s)
        return ranked(numbers(found), len(means.children) - means.codec.data) + followed

    def _sweep_child(self, child: Child, deadline_s: float) -> int | None:
        """Let a child sweep, and try one again that could not be opened.

        Returns:
            Fragments that it removed; None: it cannot be used.
        """
        means = self._means
        if not child.store.groups:
            try:
                child.store.open(fragment_groups(means.shapes))
                child.refused = ""
            except ConfigError as error:
                child.refused = error.message
        for group, keys in means.late_uses[means.children.index(child)].take().items():
            child.store.touch(group, keys)
        removed = child.store.sweep(deadline_s=deadline_s)
        return None if child.store.report().problem else removed
