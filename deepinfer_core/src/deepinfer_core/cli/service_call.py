"""How does a verb ask a running service?"""

from __future__ import annotations

from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from deepinfer_core.cli.parser import UsageError
from deepinfer_core.errors import EngineError

__all__ = ["key_in", "metrics_of"]

_WAIT_S = 10.0


def key_in(file: Path | None) -> str:
    """The first line of a file; empty without one.

    Raises:
        UsageError: it cannot be read.
    """
    if file is None:
        return ""
    try:
        return file.read_text(encoding="utf-8").split("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}", hint="give a text file") from error


def metrics_of(url: str, key: str) -> str:
    """The text of a service's metrics.

    Args:
        url: of the service, with or without the path of its metrics.
        key: of a caller; empty: none.

    Raises:
        UsageError: no such address, or the service wants another key.
        EngineError: nobody answers there, or not with metrics.
    """
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.netloc)
        is_address = is_address and " " not in parts.netloc and (parts.port or 1) > 0
    except ValueError:  # a port that is no number, brackets that do not end
        is_address = False
    if not is_address:
        raise UsageError(f"--url is {url!r}", hint="give that of the service: http://HOST:PORT")
    address = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or '/metrics'}"
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with urlopen(Request(address, headers=headers), timeout=_WAIT_S) as answer:
            text: str = answer.read().decode("utf-8", errors="replace")
    except HTTPError as error:
        if error.code in (401, 403):
            raise UsageError(
                f"{address} wants a key, found {'another one' if key else 'none'}",
                hint="--key-file FILE, whose first line is a key of the service",
            ) from error
        raise EngineError(
            f"{address} was asked for metrics, found status {error.code}",
            hint="give the address of the service itself: http://HOST:PORT",
        ) from error
    except (URLError, HTTPException, OSError) as error:
        why = getattr(error, "reason", error)
        why = getattr(why, "strerror", None) or why
        raise EngineError(
            f"{address} was asked for metrics, found nobody: {why}",
            hint="does the service run, and is this its address? GET /ready says so",
        ) from error
    if "deepinfer_build_info" not in text:
        raise EngineError(
            f"{address} was asked for metrics, found other text, or an engine that is loading",
            hint="give the address of the service itself, when GET /ready says that it is",
        )
    return text
