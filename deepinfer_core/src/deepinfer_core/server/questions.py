"""How does an answer come from another process that was asked for it?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Generic, TypeVar

from deepinfer_core.errors import EngineError

__all__ = ["Questions"]

Answer = TypeVar("Answer")


class Questions(Generic[Answer]):
    """Questions that wait for their answers.

    Args:
        wait_s: how long each may take.
    """

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._numbers = count(1)
        self._open: dict[int, asyncio.Future[Answer | None]] = {}

    async def ask(self, send: Callable[[int], None]) -> Answer | None:
        """Wait for an answer; None if whoever was asked has gone.

        Args:
            send: asks, under the number that it is given.

        Raises:
            EngineError: it takes too long.
        """
        number = next(self._numbers)
        answer: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        self._open[number] = answer
        try:
            send(number)
            async with asyncio.timeout(self._wait_s):
                return await answer
        except TimeoutError as error:
            raise EngineError(
                f"the engine did not answer within {self._wait_s:g} s",
                hint="it is held up; its log may show by what",
            ) from error
        finally:
            del self._open[number]

    def answered(self, number: int, found: Answer | None) -> None:
        """An answer came; one that nobody waits for any more is dropped."""
        answer = self._open.get(number)
        if answer is not None and not answer.done():
            answer.set_result(found)

    def end(self) -> None:
        """Whoever was asked has gone."""
        for number in tuple(self._open):
            self.answered(number, None)
