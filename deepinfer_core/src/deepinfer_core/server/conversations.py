"""Which tokens does a conversation have in front of the model?

The protocol that answers conversations says it, so that a count and an answer never differ.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepinfer_core.interfaces.protocol import HttpCall, Protocol, ServiceView
from deepinfer_core.server.threads import Threads

__all__ = ["Conversations"]


class Conversations:
    """Asks the protocols of a service.

    Args:
        threads: where prompts are written.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._writers: list[tuple[Protocol, ServiceView]] = []

    def add(self, protocol: Protocol, service: ServiceView) -> None:
        """Ask this one, too.

        Args:
            protocol: behind those that were added before.
            service: as it sees it.
        """
        self._writers.append((protocol, service))

    async def tokens(self, call: HttpCall) -> Sequence[int] | None:
        """Tokens of the conversation in the body of a call; None: no protocol takes such.

        Raises:
            RequestError: it would not be answered.
        """
        found: Sequence[int] | None = await self._threads.run(self._written, call)
        return found

    def _written(self, call: HttpCall) -> Sequence[int] | None:
        for protocol, service in self._writers:
            found = protocol.conversation_tokens(service, call)
            if found is not None:
                return found
        return None
