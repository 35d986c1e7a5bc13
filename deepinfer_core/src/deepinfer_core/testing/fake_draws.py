"""What does a stand-in for a model draw, and how well is that guessed?"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

__all__ = ["MOST_FAKE_DRAFTS", "FakeGuesses", "Guesses", "fake_token"]


def fake_token(seed: int, position: int, history: tuple[int, ...], vocabulary: int) -> int:
    """The token that ``FakeRunner`` draws for a position behind a history of all earlier tokens."""
    text = f"{seed}:{position}:{history}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) % vocabulary


MOST_FAKE_DRAFTS = 5
"""Drafts of a round that ``FakeRunner`` takes, at most: so far may a state be ahead."""

Guesses = Callable[[int, tuple[int, ...]], tuple[int, ...]]


class FakeGuesses:
    """Drafts that are right three times in four, and end early now and then.

    Args:
        count: of a round.
        vocabulary: number of token ids.
    """

    def __init__(self, count: int, vocabulary: int) -> None:
        self.count = count
        self.vocabulary = vocabulary

    def __call__(self, seed: int, history: tuple[int, ...]) -> tuple[int, ...]:
        """Guess what a seed draws behind a history."""
        drafts: list[int] = []
        for _ in range(self.count):
            known = (*history, *drafts)
            luck = fake_token(seed + 1, len(known), known, 16)
            if luck == 0:
                break
            token = fake_token(seed, len(known), known, self.vocabulary)
            drafts.append((token + (luck < 4)) % self.vocabulary)
        return tuple(drafts)
