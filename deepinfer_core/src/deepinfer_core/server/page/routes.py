"""What is sent to a browser, and what may it do with it?

The files hold nothing of this service, so they need no key; what the page then asks for does. The
policy lets a browser load and run these files alone: no script within a text, no other address.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

__all__ = ["page_routes"]

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


def page_routes() -> list[Route]:
    """The page at ``/`` and its files under ``/page/``; read now, and never again."""
    routes = []
    for item in files(__package__).joinpath("static").iterdir():
        path = "/" if item.name == "index.html" else f"/page/{item.name}"
        media_type = _TYPES[item.name.rpartition(".")[2]]
        routes.append(Route(path, _answer(item.read_bytes(), media_type), methods=["GET"]))
    return routes


def _answer(content: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return Response(content, media_type=media_type, headers=_HEADERS)

    return answer
