"""From which lengths are prompts and answers drawn?

Written as ``128`` (always that), ``64..256`` (each of these as likely) or several of them with
commas between, of which each is as likely: ``32,64..256``.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from deepinfer_core.errors import ConfigError

__all__ = ["Lengths", "parse_lengths"]

_PART = re.compile(r"(\d+)(?:\.\.(\d+))?", re.ASCII)
_LONGEST_TOKENS = 1 << 31
"""Beyond any context; a slip of the keyboard is refused before memory is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """A distribution of lengths in tokens.

    Attributes:
        text: as it was written.
        ranges: lowest and highest length of each part; at least one part.
    """

    text: str
    ranges: tuple[tuple[int, int], ...]

    @property
    def highest_tokens(self) -> int:
        """Longest length that can be drawn."""
        return max(high for _, high in self.ranges)

    def draw(self, source: random.Random) -> int:
        """One length."""
        return source.randint(*source.choice(self.ranges))


def parse_lengths(text: str, name: str) -> Lengths:
    """Read a distribution.

    Args:
        text: as described above.
        name: of the option, for messages.

    Raises:
        ConfigError: the text is something else, a length is 0, or a range is empty.
    """
    ranges = []
    for part in text.split(","):
        found = _PART.fullmatch(part.strip())
        if found is None:
            raise _refused(text, name)
        low = int(found.group(1))
        high = int(found.group(2) or low)
        if not 1 <= low <= high < _LONGEST_TOKENS:
            raise _refused(text, name)
        ranges.append((low, high))
    return Lengths(text=text.replace(" ", ""), ranges=tuple(ranges))


def _refused(text: str, name: str) -> ConfigError:
    return ConfigError(
        f"{name} is {text!r}",
        hint="give a number of tokens from 1, a range such as 64..256, or several of them as in "
        "32,64..256",
    )
