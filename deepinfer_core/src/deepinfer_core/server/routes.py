"""Which endpoint takes a call, and in which dialect does it hear that none does?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from starlette.routing import compile_path

from deepinfer_core.engine.checks import shown
from deepinfer_core.errors import ConfigError
from deepinfer_core.interfaces.protocol import Dialect, Endpoint
from deepinfer_core.server.refusals import Refused

__all__ = ["Route", "Routes"]


@dataclass(frozen=True, slots=True)
class Route:
    """An endpoint at one of its paths.

    Attributes:
        owner: component that it is of.
        endpoint: what answers.
        path: as it was written.
    """

    owner: str
    endpoint: Endpoint
    path: str


@dataclass(frozen=True, slots=True)
class _Place:
    pattern: re.Pattern[str]
    methods: dict[str, Route]


class Routes:
    """All endpoints of a server.

    Args:
        endpoints: each with the component that it is of.
        default: dialect of paths that no dialect claims and no endpoint has.

    Raises:
        ConfigError: two endpoints have one path and method.
    """

    def __init__(self, endpoints: Sequence[tuple[str, Endpoint]], default: Dialect) -> None:
        self._default = default
        self._plain: dict[str, dict[str, Route]] = {}
        self._patterns: dict[str, _Place] = {}
        self._claims: dict[str, Dialect] = {}
        for owner, endpoint in endpoints:
            for path in (endpoint.path, *endpoint.aliases):
                self._add(Route(owner, endpoint, path))
            self._claims |= dict.fromkeys(endpoint.dialect.prefixes, endpoint.dialect)

    def __iter__(self) -> Iterator[Route]:
        """Every route, in the order of the endpoints."""
        for methods in self._plain.values():
            yield from methods.values()
        for place in self._patterns.values():
            yield from place.methods.values()

    def find(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        """The endpoint of a call, and what stands for each name in its path.

        Raises:
            Refused: 404 or 405.
        """
        methods, values = self._at(path)
        # What can be got can be asked about.
        found = methods.get("GET" if method == "HEAD" else method)
        if found is not None:
            return found, values
        if not methods:
            raise _nothing_at(path)
        allowed = ", ".join(sorted(methods))
        raise Refused(
            405,
            "method_not_allowed",
            f"this path takes {allowed}",
            headers={"allow": allowed},
        )

    def dialect(self, path: str) -> Dialect:
        """How errors at a path look, whatever is there."""
        claims = [prefix for prefix in self._claims if path.startswith(prefix)]
        if claims:
            return self._claims[max(claims, key=len)]
        methods, _ = self._at(path)
        return next((route.endpoint.dialect for route in methods.values()), self._default)

    def _add(self, route: Route) -> None:
        if "{" in route.path:
            pattern, _, _ = compile_path(route.path)
            place = self._patterns.setdefault(pattern.pattern, _Place(pattern, {}))
            methods = place.methods
        else:
            methods = self._plain.setdefault(route.path, {})
        other = methods.setdefault(route.endpoint.method, route)
        if other is not route:
            raise ConfigError(
                f"{other.owner} and {route.owner} both serve {route.endpoint.method} {route.path}",
                hint="name one of them in server.protocols",
            )

    def _at(self, path: str) -> tuple[dict[str, Route], Mapping[str, str]]:
        plain = self._plain.get(path)
        if plain is not None:
            return plain, {}
        for place in self._patterns.values():
            if match := place.pattern.match(path):
                return place.methods, match.groupdict()
        return {}, {}


def _nothing_at(path: str) -> Refused:
    hint = "GET /openapi.json lists what there is"
    if path.startswith("/v1/v1/"):
        hint = "leave /v1 out of the base URL"
    return Refused(404, "not_found", f"there is nothing at {shown(path)}", hint=hint)
