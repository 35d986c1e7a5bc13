"""What becomes of the other fragments of a block when a child lets one go by itself?

They go, too: a block dies as a whole. Otherwise repairs would write again what a child has no room
for, or what has expired, and give it a new age with that. There are two exceptions, in which the
fragment counts as lost and is made again: somebody uses the block; or the child was away in one of
the last sweeps, so that others know of uses that it has not heard of.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from deepinfer_core.interfaces.kv_upkeep import Departed
from deepinfer_core.stores.calls import Tally
from deepinfer_core.stores.erasure.child import Child
from deepinfer_core.stores.erasure.crowd import ask_all
from deepinfer_core.stores.erasure.means import Means

__all__ = ["Departures"]

_SWEEPS = 2
"""That a child has taken part in before what it lets go is followed."""

_Name = tuple[str, bytes]
"""Group and key."""


class Departures:
    """Lets blocks go as a whole.

    Args:
        means: of the store.
        tally: notes and counts them.

    Attributes:
        alone: how many the reports of too few children tell, by child and reason.
    """

    def __init__(self, means: Means, tally: Tally) -> None:
        self.alone: Counter[tuple[int, str]] = Counter()
        self._means, self._tally = means, tally
        self._sweeps = [_SWEEPS] * len(means.children)
        for child in means.children:
            child.departed()

    def follow(self, swept: Collection[int], deadline_s: float) -> int:
        """Remove what is left of blocks that children have let go; how many.

        Args:
            swept: children that have taken part in this sweep.
            deadline_s: of all that.
        """
        means = self._means
        reasons: dict[_Name, str] = {}
        gone_from: defaultdict[_Name, set[int]] = defaultdict(set)
        for number, gone in self._gone(deadline_s).items():
            if number in swept and self._sweeps[number] >= _SWEEPS:
                for one in gone:
                    reasons[one.group, one.key] = one.reason
                    gone_from[one.group, one.key].add(number)
        for number in range(len(means.children)):
            self._sweeps[number] = self._sweeps[number] + 1 if number in swept else 0
        going = {name: there for name, there in gone_from.items() if not means.queue.is_used(*name)}
        self._discard(going, deadline_s)
        for name in going:
            means.queue.forget(*name)
        self._tally.note_departed([Departed(*name, reasons[name]) for name in going])
        # What more than m children let go is counted in their own reports.
        parity = len(means.children) - means.codec.data
        followed = [name for name, there in going.items() if len(there) <= parity]
        for name in followed:
            self._tally.remove(reasons[name])
            self.alone.update((number, reasons[name]) for number in going[name])
        return len(followed)

    def _gone(self, deadline_s: float) -> Mapping[int, Sequence[Departed]]:
        """What each child has let go and has not got again."""
        found = ask_all(
            self._means.children,
            "departed",
            1,
            lambda child: _still_gone(child, deadline_s),
            min(deadline_s, self._means.patience.soon()),
        )
        return {number: page for number, page in found.items() if isinstance(page, list)}

    def _discard(self, going: Mapping[_Name, Collection[int]], deadline_s: float) -> None:
        children = self._means.children
        keys_of: dict[Child, defaultdict[str, list[bytes]]] = {
            child: defaultdict(list) for child in children
        }
        for (group, key), there in going.items():
            for number, child in enumerate(children):
                if number not in there:
                    keys_of[child][group].append(key)
        ask_all(
            [child for child, keys in keys_of.items() if keys],
            "discard",
            1,
            lambda child: [
                child.discard(group, keys, deadline_s) for group, keys in keys_of[child].items()
            ],
            min(deadline_s, self._means.patience.soon()),
        )


def _still_gone(child: Child, deadline_s: float) -> list[Departed]:
    """What a child says it has not got: one that cannot tell now decides nothing."""
    gone = child.departed()
    still: list[Departed] = []
    for group in {one.group for one in gone}:
        some = [one for one in gone if one.group == group]
        found = child.store.find(group, [one.key for one in some], deadline_s=deadline_s)
        still += [one for one, there in zip(some, found, strict=True) if there.status == "miss"]
    return still
