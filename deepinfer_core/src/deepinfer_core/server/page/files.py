"""What is sent to a browser, and what may it do with it?

The files hold nothing of this service, so they need no key; what the page then asks for does. The
policy lets a browser load and run these files alone: no script within a text, no other address.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from deepinfer_core.interfaces.protocol import JsonAnswer

__all__ = ["page_answers"]

_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
}


def page_answers() -> Mapping[str, JsonAnswer]:
    """The answer to a GET of each path: the page at ``/``, its files under ``/page/``.

    They are read when this is called, and never again.
    """
    return {
        "/" if item.name == "index.html" else f"/page/{item.name}": JsonAnswer(
            content=item.read_bytes(),
            headers={**_HEADERS, "content-type": _TYPES[item.name.rpartition(".")[2]]},
        )
        for item in files(__package__).joinpath("static").iterdir()
    }
