"""How are several stores closed, one of which may never answer?"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from deepinfer_core.interfaces.kv_store import KvStore
from deepinfer_core.stores.calls import seconds_until

__all__ = ["close_all"]


def close_all(stores: Sequence[KvStore], deadline_s: float) -> None:
    """Close stores side by side; one that has not ended by the deadline is left to itself."""
    threads = [
        threading.Thread(target=store.close, name="kv-closing", daemon=True) for store in stores
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds_until(deadline_s))
