"""Where are measured step times kept, and when are they good for another engine?

One file for each set of things that change the times: the name is the digest of all of them, and
they stand in the file too. A file is used until it is too old; one that is damaged counts as not
there, because measuring again repairs it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from deepinfer_core.schedule.speculation_costs import CostCurve
from deepinfer_core.telemetry.logs import get_logger
from deepinfer_core.whole_files import replace_file

from deepinfer_dspark.measuring import MeasuredCosts
from deepinfer_dspark.reading import DAMAGE, finite, read_ordinary

__all__ = ["MeasuredFiles"]

_FORMAT = "deepinfer-dspark step times 2"
_log = get_logger(__name__)


class MeasuredFiles:
    """The files of one folder.

    Args:
        folder: need not exist; made when the first file is written.
        ttl_s: age at which a file is too old.
        now_s: seconds since the epoch.
    """

    def __init__(self, folder: Path, ttl_s: float, now_s: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._ttl_s = ttl_s
        self._now_s = now_s

    def find(self, key: Mapping[str, object]) -> MeasuredCosts | None:
        """What was measured under ``key``; None if nothing was, or too long ago."""
        path = self._path(key)
        try:
            data: Any = json.loads(read_ordinary(path))
            if data["format"] != _FORMAT or data["key"] != _plain(key):
                return None
            found = MeasuredCosts(steps=_curve(data["steps"]), rounds=_curve(data["rounds"]))
            age_s = self._now_s() - finite(data["measured_at"])
        except FileNotFoundError:
            return None
        except (OSError, *DAMAGE) as error:
            _log.warning("step_times.not_read", path=str(path), reason=repr(error))
            return None
        # A file from the future was written by another clock; nobody knows how old it is.
        return found if 0 <= age_s < self._ttl_s else None

    def keep(self, key: Mapping[str, object], measured: MeasuredCosts) -> None:
        """Write a file, and remove those that are too old; what fails is logged and left."""
        data = {
            "format": _FORMAT,
            "key": _plain(key),
            "measured_at": self._now_s(),
            "steps": _data(measured.steps),
            "rounds": _data(measured.rounds),
        }
        path = self._path(key)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            replace_file(path, json.dumps(data, indent=1) + "\n")
            self._remove_old()
        except OSError as error:
            _log.warning("step_times.not_kept", path=str(path), reason=str(error))

    def _path(self, key: Mapping[str, object]) -> Path:
        text = json.dumps(_plain(key), sort_keys=True)
        return self._folder / f"step-times-{sha256(text.encode()).hexdigest()[:32]}.json"

    def _remove_old(self) -> None:
        oldest_s = self._now_s() - self._ttl_s
        for path in self._folder.glob("step-times-*.json"):
            try:
                if path.stat().st_mtime < oldest_s:
                    path.unlink()
            except FileNotFoundError:
                continue  # another engine was faster


def _plain(key: Mapping[str, object]) -> Any:
    """The key as JSON gives it back."""
    return json.loads(json.dumps(key))


def _data(curve: CostCurve) -> dict[str, object]:
    return {"sizes": curve.rows, "milliseconds": curve.milliseconds}


def _curve(data: Any) -> CostCurve:
    return CostCurve(
        rows=tuple(map(int, data["sizes"])), milliseconds=tuple(map(finite, data["milliseconds"]))
    )
