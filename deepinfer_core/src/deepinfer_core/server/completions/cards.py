"""Which models does the service have, what can it do, and who answers here?

One card serves the public clients of both dialects. What is said of the service holds names, sizes
and versions, no paths and no keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from deepinfer_core import __version__
from deepinfer_core.errors import NotFound, UnknownModel
from deepinfer_core.interfaces.protocol import Handle, HttpAnswer, HttpCall, JsonAnswer, ServiceView
from deepinfer_core.server.dialect import json_bytes

__all__ = ["Cards", "served_name"]


def served_name(names: Sequence[str], given: object) -> str:
    """The name that an answer repeats.

    Args:
        names: under which the model is served.
        given: what a body asks for; None or empty: nothing.

    Raises:
        UnknownModel: it is none of them.
    """
    if given is None or given == "":
        return names[0]
    if isinstance(given, str) and given in names:
        return given
    raise UnknownModel.named(given, names)


class Cards:
    """Answers what is asked about models and service.

    Args:
        service: to describe.
    """

    def __init__(self, service: ServiceView) -> None:
        self._service = service

    async def models(self, call: HttpCall) -> HttpAnswer:
        """All names under which the model is served."""
        names = self._service.model_names
        content = {
            "object": "list",
            "data": [self._card(name) for name in names],
            "has_more": False,
            "first_id": names[0],
            "last_id": names[-1],
        }
        return JsonAnswer(content=json_bytes(content))

    async def model(self, call: HttpCall) -> HttpAnswer:
        """One of them.

        Raises:
            NotFound: the service has no model of this name.
        """
        name = call.path_values["model"]
        if name not in self._service.model_names:
            raise NotFound(
                f"there is no model {name!r:.200}",
                hint="GET /v1/models lists them",
                code="model_not_found",
            )
        return await self.model_of(name)(call)

    def model_of(self, name: str) -> Handle:
        """The same for one of the names."""

        async def model(call: HttpCall) -> HttpAnswer:
            return JsonAnswer(content=json_bytes(self._card(name)))

        return model

    async def version(self, call: HttpCall) -> HttpAnswer:
        """Of the software."""
        return JsonAnswer(content=json_bytes({"version": __version__}))

    async def server_info(self, call: HttpCall) -> HttpAnswer:
        """What holds for the loaded engine.

        Raises:
            EngineUnavailable: nothing was loaded yet.
        """
        engine = self._service.engine
        facts = engine.facts
        content = {
            "version": __version__,
            "model": facts.model,
            "model_names": list(self._service.model_names),
            "state": engine.state,
            "in_work": engine.in_work,
            "started_s": self._service.created_s,
            "max_model_len": facts.max_model_len,
            "vocabulary": facts.vocabulary,
            "has_tokenizer": facts.tokenizer_json is not None,
            "grammar_kinds": list(facts.grammar_kinds),
            "components": dict(facts.components),
            "report": dict(facts.report),
        }
        return JsonAnswer(content=json_bytes(content))

    def _card(self, name: str) -> dict[str, Any]:
        created_s = self._service.created_s
        return {
            "id": name,
            "object": "model",
            "created": created_s,
            "owned_by": "deepinfer",
            "type": "model",
            "display_name": name,
            "created_at": datetime.fromtimestamp(created_s, UTC).isoformat().replace("+00:00", "Z"),
            "max_model_len": self._service.engine.facts.max_model_len,
        }
