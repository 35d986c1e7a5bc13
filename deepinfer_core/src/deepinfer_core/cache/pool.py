"""Which blocks, or which state slots, are free, and how many users has each?

One class serves both: a pool hands out numbers. Number 0 is a dummy that padding rows may write to;
it is never handed out. The pool knows no memory, only numbers.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence

from deepinfer_core.errors import EngineError

__all__ = ["PagePool"]


class PagePool:
    """Numbers 1 to ``count - 1`` with reference counts.

    Args:
        count: pages that exist, the dummy included; at least 2.
        title: what a page is, for messages: ``block`` or ``state slot``.

    Raises:
        ValueError: there is no usable page.
    """

    def __init__(self, count: int, title: str = "block") -> None:
        if count < 2:
            raise ValueError(f"a pool needs a dummy and a usable {title}, found {count}")
        self._count = count
        self._title = title
        # Taken from the left, returned to the right: a freed page is reused as late as possible.
        self._free = deque(range(1, count))
        self._users = [0] * count

    @property
    def free_count(self) -> int:
        """Pages that nobody holds."""
        return len(self._free)

    def users(self, page: int) -> int:
        """How many users a page has; 0 if it is free."""
        return self._users[page]

    def take(self, wanted: int) -> tuple[int, ...]:
        """Hand out pages; the caller is their only user.

        Raises:
            EngineError: fewer are free; nothing was handed out.
        """
        if not 0 <= wanted <= len(self._free):
            raise EngineError(f"{wanted} {self._title}s were asked for, {len(self._free)} are free")
        pages = tuple(self._free.popleft() for _ in range(wanted))
        for page in pages:
            self._users[page] = 1
        return pages

    def share(self, pages: Sequence[int]) -> None:
        """Count one more user of each page.

        Raises:
            EngineError: a page is free or does not exist; nothing was changed.
        """
        self._check_held(set(pages))
        for page in pages:
            self._users[page] += 1

    def release(self, pages: Sequence[int]) -> None:
        """Count one user fewer of each page; a page without users is free again.

        The last page goes first, so that the front of a sequence stays untouched for longest.

        Raises:
            EngineError: a page is free or does not exist; nothing was changed.
        """
        self._check_held(pages)
        for page in reversed(pages):
            self._users[page] -= 1
            if not self._users[page]:
                self._free.append(page)

    def check_integrity(self, holders: Iterable[Sequence[int]]) -> None:
        """Compare the books with what all users say they hold.

        Args:
            holders: the pages of each user, of all users.

        Raises:
            EngineError: a page is lost, free and held, or held more or less often than counted.
        """
        held = Counter(page for pages in holders for page in pages)
        counted = Counter({page: users for page, users in enumerate(self._users) if users})
        if held != counted:
            wrong = sorted(page for page in held | counted if held[page] != counted[page])
            raise EngineError(f"{self._title}s {wrong} are held otherwise than counted")
        free = Counter(self._free)
        unused = Counter(page for page in range(1, self._count) if not counted[page])
        if free != unused or counted[0]:
            raise EngineError(f"the list of free {self._title}s does not match their users")

    def _check_held(self, pages: Iterable[int]) -> None:
        for page, times in Counter(pages).items():
            if not 0 < page < self._count or self._users[page] < times:
                raise EngineError(f"{self._title} {page} has fewer than {times} users")
