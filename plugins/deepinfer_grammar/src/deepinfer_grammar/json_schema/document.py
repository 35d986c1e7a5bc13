"""Which schema does a reference mean?

A schema document is one JSON text. A ``Place`` is a schema in it: its path and, where the document
has dynamic references, the resources entered on the way. Nothing is ever fetched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from deepinfer_grammar.errors import SchemaFault
from deepinfer_grammar.json_text import parsed_json

__all__ = ["Document", "Place", "pointer"]

_SCHEMAS_BY_NAME = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
_NO_SCHEMAS = frozenset({"const", "enum", "default", "examples", "required", "dependentRequired"})

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A schema of the document.

    Attributes:
        path: keys and indices from the root.
        scope: resources entered, outermost first; empty in documents without dynamic references.
    """

    path: Path
    scope: tuple[str, ...] = ()

    def below(self, *steps: str | int) -> Place:
        """A schema inside this one."""
        return Place((*self.path, *steps), self.scope)

    def __str__(self) -> str:
        return pointer(self.path)


def pointer(path: Path) -> str:
    """A JSON pointer with ``#`` in front."""
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in path)
    return "#" + "".join(f"/{step}" for step in steps)


class Document:
    """A parsed schema text and the names in it.

    Args:
        text: JSON.

    Raises:
        TextFault: it is not JSON, or too deep; with the place.
    """

    def __init__(self, text: str) -> None:
        self.root = parsed_json(text, "the schema")
        self.has_unevaluated = '"unevaluated' in text
        self._is_dynamic = "$dynamicRef" in text or "$recursiveRef" in text
        self._resources: dict[str, Path] = {"": ()}
        self._anchors: dict[tuple[str, str], Path] = {}
        self._dynamic: dict[tuple[str, str], Path] = {}
        self._bases: dict[Path, str] = {}
        self._index(self.root, (), "")

    def start(self) -> Place:
        """The root schema."""
        return self.entered(Place(()))

    def at(self, place: Place) -> Any:
        """The value at a place, which exists."""
        return self._value(place.path)

    def child(self, place: Place, *steps: str | int) -> Place:
        """A schema inside another one."""
        return self.entered(place.below(*steps))

    def entered(self, place: Place) -> Place:
        """The place with its own resource in its scope."""
        if not self._is_dynamic:
            return place
        base = self._base(place.path)
        if base in place.scope:
            return place
        return Place(place.path, (*place.scope, base))

    def resolve(self, place: Place, keyword: str) -> Place:
        """What a reference at a place means.

        Raises:
            SchemaFault: it is no text, leaves the document or leads nowhere.
        """
        path = pointer((*place.path, keyword))
        reference = self.at(place)[keyword]
        if not isinstance(reference, str):
            raise SchemaFault("a reference must be a text", path)
        base = self._base(place.path)
        # ``urljoin`` knows no fragments of names such as ``urn:...``.
        url, fragment = urldefrag(
            base + reference if reference.startswith("#") else urljoin(base, reference)
        )
        fragment = unquote(fragment)
        found = self._lookup(url, fragment)
        if found is None:
            raise SchemaFault(
                f"the reference {reference!r} leads nowhere in the schema",
                path,
                hint="write the schema under $defs; nothing is fetched",
            )
        if keyword == "$dynamicRef" and self._dynamic.get((url, fragment)) == found:
            for base in place.scope:
                if (base, fragment) in self._dynamic:
                    found = self._dynamic[base, fragment]
                    break
        return self._landed(place, found)

    def _landed(self, place: Place, found: Path) -> Place:
        return self.entered(Place(found, place.scope))

    def _lookup(self, url: str, fragment: str) -> Path | None:
        resource = self._resources.get(url)
        if resource is None:
            return None
        if (url, fragment) in self._anchors:
            return self._anchors[url, fragment]
        if fragment and not fragment.startswith("/"):
            return None
        path = list(resource)
        value = self._value(resource)
        for step in fragment.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and name in value:
                path.append(name)
                value = value[name]
            elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
                path.append(int(name))
                value = value[int(name)]
            else:
                return None
        return tuple(path)

    def _value(self, path: Path) -> Any:
        value = self.root
        for step in path:
            value = value[step]
        return value

    def _base(self, path: Path) -> str:
        for length in range(len(path), -1, -1):
            if path[:length] in self._bases:
                return self._bases[path[:length]]
        return ""

    def _index(self, value: Any, path: Path, base: str) -> None:
        """Note identifiers and anchors of a schema and those inside it."""
        if not isinstance(value, dict):
            return
        identifier = value.get("$id", value.get("id"))
        if isinstance(identifier, str):
            url, fragment = urldefrag(urljoin(base, identifier))
            if fragment:
                self._anchors[url, fragment] = path
            else:
                base = url
                self._resources.setdefault(url, path)
                self._bases[path] = url
        for key in ("$anchor", "$dynamicAnchor"):
            if isinstance(value.get(key), str):
                self._anchors[base, value[key]] = path
                if key == "$dynamicAnchor":
                    self._dynamic[base, value[key]] = path
        for steps, inner in _inner_schemas(value):
            self._index(inner, (*path, *steps), base)


def _inner_schemas(schema: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    for key, value in schema.items():
        if key in _NO_SCHEMAS:
            continue
        if key in _SCHEMAS_BY_NAME and isinstance(value, dict):
            for name, inner in value.items():
                yield (key, name), inner
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                yield (key, index), inner
        else:
            yield (key,), value
