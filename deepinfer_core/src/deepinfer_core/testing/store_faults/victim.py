"""The process that comes to harm: it writes until it is killed, or reads what is left.

    python -m deepinfer_core.testing.store_faults.victim COMPONENT FOLDER write FIRST
    python -m deepinfer_core.testing.store_faults.victim COMPONENT FOLDER read COUNT
    python -m deepinfer_core.testing.store_faults.victim COMPONENT FOLDER full SEED COUNT

``write`` stores numbered blocks from the first on, five at a time, and prints the number of each
batch behind it. ``read`` loads that many and prints how many have which outcome; ``refused``, if
the store does not open. ``full`` stores into a medium that ends, time after time, and prints the
outcomes of each time. All of them fail if a store hands out wrong bytes.
"""

from __future__ import annotations

import json
import random
import resource
import signal
import sys
from collections import Counter
from pathlib import Path

from deepinfer_core.errors import DeepInferError
from deepinfer_core.interfaces.kv_store import StoreItem
from deepinfer_core.testing.store_faults.blocks import loaded, numbered
from deepinfer_core.testing.store_faults.targets import make_target
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER

__all__ = ["BATCH_BLOCKS"]

BATCH_BLOCKS = 5


def _write(name: str, folder: Path, first: int) -> None:
    store = make_target(name, folder).store
    store.open([BLOCKS])
    while True:
        batch = [numbered(number) for number in range(first, first + BATCH_BLOCKS)]
        statuses = {one.status for one in store.store("blocks", batch, deadline_s=FOREVER)}
        _say(json.dumps([first, sorted(statuses)]))
        first += BATCH_BLOCKS


def _read(name: str, folder: Path, count: int) -> None:
    store = make_target(name, folder).store
    try:
        store.open([BLOCKS])
    except DeepInferError:
        _say(json.dumps({"refused": count}))
        return
    found = loaded(store, [numbered(number) for number in range(count)])
    _say(json.dumps(Counter(one.status for one in found)))
    store.close()


def _full(name: str, folder: Path, seed: int, count: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    draw, (_, most) = random.Random(seed), resource.getrlimit(resource.RLIMIT_FSIZE)
    for number in range(count):
        store = make_target(name, folder / str(number)).store
        store.open([BLOCKS])
        resource.setrlimit(resource.RLIMIT_FSIZE, (draw.randrange(1 << 14, 1 << 19), most))
        batches = [range(at, at + BATCH_BLOCKS) for at in range(0, 200, BATCH_BLOCKS)]
        kept: list[StoreItem] = []
        found: Counter[str] = Counter()
        for batch in batches:
            items = [numbered(one) for one in batch]
            outcomes = store.store("blocks", items, deadline_s=FOREVER)
            found.update(one.status for one in outcomes)
            kept += [i for i, one in zip(items, outcomes, strict=True) if one.status == "stored"]
        if {one.status for one in loaded(store, kept)} - {"hit"}:
            raise SystemExit("a block that was stored is gone")
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        late = numbered(1000)
        [outcome] = store.store("blocks", [late], deadline_s=FOREVER)
        if outcome.status != "stored" or loaded(store, [late])[0].status != "hit":
            raise SystemExit(f"nothing can be stored where there is room again: {outcome}")
        store.close()
        _say(json.dumps(found))


def _say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def _main() -> None:
    name, folder, action = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    numbers = [int(word) for word in sys.argv[4:]]
    if action == "write":
        _write(name, folder, numbers[0])
    elif action == "read":
        _read(name, folder, numbers[0])
    else:
        _full(name, folder, seed=numbers[0], count=numbers[1])


if __name__ == "__main__":
    _main()
