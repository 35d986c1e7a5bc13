"""How does one visitor walk through a script, and what of it may a cache know already?"""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import dataclass, field
from typing import Literal

from deepinfer_core.bench.lengths import Lengths
from deepinfer_core.bench.serve.bodies import Bodies
from deepinfer_core.bench.serve.client import Client
from deepinfer_core.bench.serve.exchange import Exchange
from deepinfer_core.bench.serve.scripts import Message, Script, continued, known_messages

__all__ = ["CacheMode", "Visitor"]

CacheMode = Literal["cold", "shared", "warm"]
"""``cold``: no request finds anything; ``shared``: requests of one load find what they share with
one another; ``warm``: every script was asked before, as far as it is known without answers."""


@dataclass(slots=True, kw_only=True)
class Visitor:
    """Asks a service what scripts say.

    Attributes:
        client: ways to the service.
        bodies: form of the requests.
        outputs: most tokens of the answers.
        seed: of their lengths.
        cache: what may be found in the service's cache.
        salt: no other use of the service has it; loads add to it where they must not share.
    """

    client: Client
    bodies: Bodies
    outputs: Lengths
    seed: int
    cache: CacheMode
    salt: str
    _load: int = 0
    _visits: int = 0
    _requests: itertools.count[int] = field(default_factory=itertools.count)

    def next_load(self) -> None:
        """Another load begins; each has the same lengths of answers."""
        self._load += 1
        self._visits = 0

    async def visit(self, script: Script, due_s: float) -> list[Exchange]:
        """Ask all turns, up to one that fails.

        Args:
            script: the conversation.
            due_s: when its first request is due; later ones are due when the answer is there.
        """
        source = random.Random(f"{self.seed}/{self._visits}/{script.name}")
        self._visits += 1
        history: tuple[Message, ...] = ()
        answer, exchanges = "", []
        for turn in script.turns:
            history = continued(history, answer, turn)
            exchange = Exchange(kind=script.kind, due_s=due_s)
            exchanges.append(exchange)
            await self._ask(history, script, self.outputs.draw(source), exchange)
            if exchange.failure:
                break
            answer, due_s = exchange.answer, time.perf_counter()
        return exchanges

    async def acquaint(self, script: Script) -> Exchange:
        """Ask for one token behind all that is known of a script, so that a cache has it."""
        exchange = Exchange(kind=script.kind, due_s=time.perf_counter())
        await self._ask(known_messages(script), script, 1, exchange)
        return exchange

    async def _ask(
        self, history: tuple[Message, ...], script: Script, tokens: int, exchange: Exchange
    ) -> None:
        body = self.bodies.body(history, script.fields, output_tokens=tokens, salt=self._salt())
        await self.client.ask(self.bodies.path, body, exchange)

    def _salt(self) -> str:
        if self.cache == "warm":
            return self.salt
        number = next(self._requests) if self.cache == "cold" else self._load
        return f"{self.salt}-{number}"
