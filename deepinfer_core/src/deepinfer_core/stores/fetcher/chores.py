"""What does a store need now and then that nobody waits for?"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition, Thread

from deepinfer_core.interfaces.kv_store import StoreReport
from deepinfer_core.stores.fetcher.endpoint import Endpoint
from deepinfer_core.telemetry.logs import get_logger

__all__ = ["Chores"]

_REPORT_EVERY_S = 5.0

_MOST_USES = 1024
"""Notes of uses that wait; more are forgotten, as they may be."""


class Chores:
    """Notes uses of blocks, sweeps and reports, in a thread.

    Args:
        endpoint: of the store.
        sweep_every_s: seconds between two sweeps.
        tell: told what there is to tell of the store.
    """

    def __init__(
        self, endpoint: Endpoint, sweep_every_s: float, tell: Callable[[StoreReport], None]
    ) -> None:
        self._store, self._sweep_every_s, self._tell = endpoint.store, sweep_every_s, tell
        self._changed = Condition()
        self._uses: deque[tuple[str, Sequence[bytes], str]] = deque(maxlen=_MOST_USES)

    def start(self) -> None:
        """Begin."""
        Thread(target=self._work, name="deepinfer-chores", daemon=True).start()

    def used(self, group: str, keys: Sequence[bytes], retention: str) -> None:
        """Blocks were used by traffic of a class."""
        if keys and retention:
            with self._changed:
                self._uses.append((group, keys, retention))
                self._changed.notify_all()

    def _work(self) -> None:
        report_s = time.monotonic()
        sweep_s = report_s + self._sweep_every_s
        while True:
            with self._changed:
                wait_s = max(0.0, min(report_s, sweep_s) - time.monotonic())
                self._changed.wait_for(lambda: self._uses, wait_s)
                use = self._uses.popleft() if self._uses else None
            try:
                if use is not None:
                    group, keys, retention = use
                    self._store.touch(group, keys, retention=retention)
                if time.monotonic() >= sweep_s:
                    sweep_s = time.monotonic() + self._sweep_every_s
                    self._store.sweep(deadline_s=sweep_s)
                if time.monotonic() >= report_s:
                    report_s = time.monotonic() + _REPORT_EVERY_S
                    self._tell(self._store.report())
            except BaseException as error:  # noqa: BLE001 - stores are foreign code
                get_logger(__name__).error("store.failed", call="sweep", exc_info=error)
