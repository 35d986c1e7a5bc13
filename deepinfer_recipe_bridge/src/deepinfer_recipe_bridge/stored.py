"""Which responses are remembered, so that a later request may go on from them?

They are kept in memory, the oldest are forgotten first, and nobody sees those of another key.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import Any

from deepinfer_recipe_bridge.json_text import json_data

__all__ = ["StoredResponse", "StoredResponses"]


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """One response, and what it answered.

    Attributes:
        key_label: of the key that it came with.
        text: JSON text of the response.
        history: JSON text of the items before it: the input, earlier turns included.
    """

    key_label: str
    text: str
    history: str

    @property
    def items(self) -> list[Any]:
        """All items that a later request goes on from."""
        output: list[Any] = json_data(self.text).get("output", [])
        return [*json_data(self.history), *output]

    @property
    def size_bytes(self) -> int:
        """Characters, four bytes each at most."""
        return 4 * (len(self.text) + len(self.history))


class StoredResponses:
    """A bounded store; may be used from several threads.

    Args:
        most: responses that are kept.
        most_bytes: that they take.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._kept: OrderedDict[str, StoredResponse] = OrderedDict()
        self._size_bytes = 0
        self._lock = Lock()

    @property
    def is_used(self) -> bool:
        """Whether anything is ever kept."""
        return self._most > 0

    def put(self, response_id: str, response: StoredResponse) -> None:
        """Keep a response; one that is larger than the store is not kept."""
        with self._lock:
            self._kept[response_id] = response
            self._size_bytes += response.size_bytes
            while len(self._kept) > self._most or self._size_bytes > self._most_bytes:
                _, oldest = self._kept.popitem(last=False)
                self._size_bytes -= oldest.size_bytes

    def get(self, response_id: str, key_label: str) -> StoredResponse | None:
        """A response of a key; None if there is none."""
        with self._lock:
            found = self._kept.get(response_id)
            return found if found is not None and found.key_label == key_label else None

    def remove(self, response_id: str, key_label: str) -> bool:
        """Forget a response of a key; whether there was one."""
        if self.get(response_id, key_label) is None:
            return False
        with self._lock:
            found = self._kept.pop(response_id, None)
            self._size_bytes -= found.size_bytes if found else 0
            return found is not None
