"""What would users ask for over weeks, some of whom come back days later?

Synthetic, for horizons and lengths that no public trace has. A session begins with one of 200
shared prefixes, drawn by Zipf's law, of 4,000 to 24,000 tokens; each turn appends a log-normal
number of tokens with a mean of 3,100; the next turn comes behind the answer and a pause. It ends
with two turns in a hundred, or at a length drawn log-uniformly from 32,000 to 1,000,000 tokens.
Pauses of agents are exponential with a mean of 8 s; those of chats log-normal with a median of
60 s and a width that is given: it decides how many come back after days.
"""

import heapq
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from deepinfer_core.cache.keys import block_key
from trace_replay import ROOT, Request

BLOCK_TOKENS = 1024
"""Eight times the engine's: fewer blocks, and hits that are shorter by half a block on average."""
ANSWER_S = 15.0
PREFIXES = 200
APPENDED_TOKENS, APPENDED_SIGMA = 3_100, 1.0
DAY_S = 86_400.0


@dataclass(order=True, slots=True)
class Session:
    """One conversation, by when its next turn comes."""

    at_s: float
    number: int
    traffic: str = field(compare=False)
    prefix: int = field(compare=False)
    prefix_tokens: int = field(compare=False)
    tokens: int = field(compare=False)
    most_tokens: float = field(compare=False)
    keys: list[bytes] = field(compare=False, default_factory=list)

    def request(self) -> Request:
        """Its next turn."""
        while (end := (len(self.keys) + 1) * BLOCK_TOKENS) <= self.tokens:
            owner = self.prefix if end <= self.prefix_tokens else PREFIXES + self.number
            parent = self.keys[-1] if self.keys else ROOT
            self.keys.append(block_key(parent, (owner, len(self.keys))))
        return Request(self.at_s, self.tokens, tuple(self.keys), self.traffic, BLOCK_TOKENS)


def sessions(seed: int, *, days: float, count: int, chat_sigma: float) -> Iterator[Request]:
    """Requests in order of time.

    Args:
        seed: of all draws.
        days: how long requests come.
        count: sessions of each of the two classes, which begin evenly over that time.
        chat_sigma: standard deviation of the logarithm of a chat's pauses.
    """
    draw = random.Random(seed)
    weights = [1 / (rank + 1) for rank in range(PREFIXES)]
    sizes = [draw.randint(4_000, 24_000) for _ in range(PREFIXES)]
    waiting = []
    for number in range(2 * count):
        [prefix] = draw.choices(range(PREFIXES), weights)
        waiting.append(
            Session(
                draw.uniform(0, days * DAY_S), number, "chat" if number % 2 else "agent", prefix,
                sizes[prefix], sizes[prefix] + _appended(draw),
                math.exp(draw.uniform(math.log(32e3), math.log(1e6))),
            )
        )  # fmt: skip
    heapq.heapify(waiting)
    while waiting and waiting[0].at_s < days * DAY_S:
        one = waiting[0]
        yield one.request()
        one.tokens += _appended(draw)
        one.at_s += ANSWER_S + _pause_s(draw, one.traffic, chat_sigma)
        if draw.random() < 0.02 or one.tokens > one.most_tokens:
            heapq.heappop(waiting)
        else:
            heapq.heapreplace(waiting, one)


def later_than(chat_sigma: float, days: float) -> float:
    """Share of a chat's pauses that are longer."""
    return 0.5 * math.erfc(math.log(days * DAY_S / 60.0) / chat_sigma / math.sqrt(2))


def _appended(draw: random.Random) -> int:
    mu = math.log(APPENDED_TOKENS) - APPENDED_SIGMA**2 / 2
    return max(1, round(draw.lognormvariate(mu, APPENDED_SIGMA)))


def _pause_s(draw: random.Random, traffic: str, chat_sigma: float) -> float:
    if traffic == "agent":
        return draw.expovariate(1 / 8.0)
    return draw.lognormvariate(math.log(60.0), chat_sigma)
