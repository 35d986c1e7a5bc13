"""How is a prompt of so many tokens made for a service whose tokenizer is unknown?

Of random words. Two requests show how many tokens a word takes there and how many the conversation
around them; what the service then counted is what figures say.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from deepinfer_core.bench.lengths import Lengths
from deepinfer_core.bench.serve.scripts import Script

__all__ = ["WordRate", "random_scripts", "random_words", "word_rate"]

_WORDS = (
    "day", "sun", "tree", "little", "house", "dog", "red", "ball", "girl", "boy", "happy", "play",
    "water", "friend", "big", "blue", "bird", "garden", "mother", "father", "box", "door", "small",
    "green", "fish", "run", "walk", "song", "cake", "star", "rain", "stone", "boat", "hat", "book",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class WordRate:
    """What words cost in tokens.

    Attributes:
        tokens_per_word: of long texts of random words.
        fixed_tokens: of an empty prompt.
    """

    tokens_per_word: float
    fixed_tokens: float

    def words(self, tokens: int) -> int:
        """How many words make a prompt of about so many tokens; at least one."""
        return max(1, round((tokens - self.fixed_tokens) / self.tokens_per_word))


def word_rate(short: tuple[int, int], long: tuple[int, int]) -> WordRate:
    """From two prompts.

    Args:
        short: (words, tokens) of a prompt.
        long: likewise, with more words.
    """
    rate = max(long[1] - short[1], 1) / (long[0] - short[0])
    return WordRate(tokens_per_word=rate, fixed_tokens=short[1] - rate * short[0])


def random_words(count: int, source: random.Random) -> str:
    """A text of so many words."""
    return " ".join(source.choices(_WORDS, k=count))


def random_scripts(count: int, lengths: Lengths, rate: WordRate, seed: int) -> list[Script]:
    """Scripts of one turn, all of them different.

    Args:
        count: of scripts.
        lengths: of their prompts in tokens.
        rate: of the service.
        seed: the same one gives the same scripts.
    """
    source = random.Random(seed)
    return [
        Script(
            name=f"random/{number}",
            kind="random",
            turns=(({"role": "user", "content": _text(lengths, rate, source)},),),
        )
        for number in range(count)
    ]


def _text(lengths: Lengths, rate: WordRate, source: random.Random) -> str:
    return random_words(rate.words(lengths.draw(source)), source)
