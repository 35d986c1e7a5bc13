"""What do all sweeps share? Things that the first test of a class makes for the others."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

__all__ = ["Sweep"]

Made = TypeVar("Made")


class Sweep:
    """A class of tests over one kind of engine."""

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Give what a test of this very class made before, or make it.

        Args:
            key: names it.
            make: makes it.
        """
        owner: Any = type(self)
        if "_made" not in vars(owner):
            owner._made = {}
        made: dict[Hashable, Made] = owner._made
        if key not in made:
            made[key] = make()
        return made[key]
