"""Which blocks come next, of all that any child has a fragment of?"""

from __future__ import annotations

from collections.abc import Sequence

from deepinfer_core.stores.erasure.crowd import ask_all
from deepinfer_core.stores.erasure.means import Means

__all__ = ["Listing"]

_KEYS_AT_ONCE = 1024


class Listing:
    """Goes round the keys of a group, some at a time.

    Args:
        means: of the store.
        group: name of the group.
    """

    def __init__(self, means: Means, group: str) -> None:
        self._means, self._group = means, group
        self._after = b""

    def next_keys(self, deadline_s: float) -> Sequence[bytes]:
        """Keys in order, behind the last ones; none: all have been seen, and it begins anew."""
        after = self._after
        pages = ask_all(
            self._means.children,
            "survey",
            _KEYS_AT_ONCE,
            lambda child: child.survey(self._group, after, _KEYS_AT_ONCE, deadline_s),
            min(deadline_s, self._means.patience.soon()),
        )
        found = [page for page in pages.values() if isinstance(page, list)]
        last = min((page[-1].key for page in found if len(page) == _KEYS_AT_ONCE), default=b"")
        keys = sorted({one.key for page in found for one in page if not last or one.key <= last})
        self._after = last or (keys[-1] if keys else b"")
        return keys
