"""How do tools learn which endpoints there are and what they take?

An OpenAPI 3.1 document, made from the endpoints themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import importlib_metadata

from deepinfer_core.interfaces.protocol import Endpoint
from deepinfer_core.server.routes import Route

__all__ = ["openapi_document"]

_NAME = re.compile(r"{(\w+)}")
_ANSWERS = {
    "200": "The answer.",
    "400": "The request is invalid.",
    "401": "A key is missing or unknown.",
    "403": "The host or origin is refused.",
    "404": "There is no such thing.",
    "408": "The body came too slowly.",
    "413": "The body is too large.",
    "415": "The body is no JSON.",
    "429": "There is no room now; retry-after says when.",
    "503": "The engine takes no requests now; retry-after says when.",
}
_OF_BODIES = frozenset({"408", "413", "415"})


def openapi_document(routes: Iterable[Route], *, needs_key: bool) -> dict[str, Any]:
    """The document as plain data.

    Args:
        routes: what is served.
        needs_key: whether keys are asked for.
    """
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        methods = paths.setdefault(route.path, {})
        methods[route.endpoint.method.lower()] = _operation(route)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "DeepInfer", "version": importlib_metadata.version("deepinfer-core")},
        "paths": paths,
    }
    if needs_key:
        scheme = {"type": "http", "scheme": "bearer"}
        document["components"] = {"securitySchemes": {"key": scheme}}
        document["security"] = [{"key": []}]
    return document


def _operation(route: Route) -> dict[str, Any]:
    endpoint = route.endpoint
    described: dict[str, Any] = {
        "operationId": f"{endpoint.method.lower()} {route.path}",
        "tags": [route.owner],
        "responses": {
            status: {"description": text}
            for status, text in _ANSWERS.items()
            if endpoint.method == "POST" or status not in _OF_BODIES
        },
    }
    if endpoint.summary:
        described["summary"] = endpoint.summary
    if names := _NAME.findall(route.path):
        described["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ]
    if endpoint.method == "POST":
        described["requestBody"] = _body(endpoint)
    return described


def _body(endpoint: Endpoint) -> dict[str, Any]:
    schema = endpoint.body if endpoint.body is not None else {"type": "object"}
    return {"required": True, "content": {"application/json": {"schema": dict(schema)}}}
