"""An engine that gives the tokens of a test, split as the test says, and calls without HTTP."""

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deepinfer_core.engine.outputs import FinishReason, TokenLogprob
from deepinfer_core.errors import (
    DeadlineExceeded,
    DeepInferError,
    EngineBusy,
    EngineUnavailable,
    NotFound,
    RequestError,
)
from deepinfer_core.interfaces.async_engine import (
    AbortedBy,
    AsyncEngine,
    GenerateRequest,
    Tokens,
)
from deepinfer_core.interfaces.protocol import (
    CallNotes,
    DirectWrite,
    Endpoint,
    HttpCall,
    JsonAnswer,
    Protocol,
    ServiceView,
)
from deepinfer_core.testing.byte_tokenizer import FIRST_BYTE, byte_tokens
from deepinfer_core.testing.fake_answers import Script, made_up_logprobs
from deepinfer_core.testing.fake_async_engine import FakeAsyncEngine

MODEL = "m"
BOS, EOS, PAD, USER, ASSISTANT, SYSTEM, THINK, THINK_END, DSML = range(FIRST_BYTE)
ALL_KINDS = ("json_schema", "json_object", "regex", "ebnf", "choice", "structural_tag")


def tokens_of(text: str) -> list[int]:
    """One token for each byte."""
    return list(byte_tokens(text))


def marked(text: str) -> list[int]:
    """The same, where ``«D»`` stands for the marker of calls and ``«/think»`` for ``</think>``."""
    found: list[int] = []
    for place, part in enumerate(text.replace("«/think»", "«D»\0").split("«D»")):
        if place:
            found.append(THINK_END if part.startswith("\0") else DSML)
        found += tokens_of(part.removeprefix("\0"))
    return found


def logprob_of(token: int, alternatives: int) -> TokenLogprob:
    """Made-up figures, the same for the same token."""
    return next(made_up_logprobs([token], alternatives))


class ScriptedEngine(FakeAsyncEngine):
    """Gives ``steps`` to every request, one item each, and counts them.

    Without ``starts`` a request ends while it waits, and has no steps.
    """

    def __init__(
        self,
        steps: Sequence[Sequence[int]] = (),
        *,
        reason: FinishReason = "stop",
        cached: int = 0,
        starts: bool = True,
        refusal: DeepInferError | None = None,
        failure: DeepInferError | None = None,
        aborted_by: AbortedBy | None = None,
        **facts: Any,
    ) -> None:
        facts = {"grammar_kinds": ALL_KINDS, "max_model_len": 1_000_000, **facts}
        super().__init__(self.script, failure=lambda request, count: refusal, **facts)
        self.given, self.items_given = steps, 0
        self.ends: dict[str, Any] = {
            "reason": reason, "aborted_by": aborted_by, "starts": starts, "failure": failure,
        }  # fmt: skip
        self.cached = cached

    @property
    def closed(self) -> int:
        """Requests that are over."""
        return len(self.outcomes)

    def script(self, request: GenerateRequest) -> Script:
        return Script(steps=self.items(request), cached=self.cached, **self.ends)

    def items(self, request: GenerateRequest) -> Iterator[Tokens]:
        wanted = request.params.alternatives
        for step in self.given:
            self.items_given += 1
            logprobs = () if wanted is None else tuple(made_up_logprobs(step, wanted))
            yield Tokens(tuple(step), "", logprobs)


@dataclass
class Reply:
    """What a client would see."""

    status: int
    raw: bytes
    notes: CallNotes
    writes: list[bytes] = field(default_factory=list)
    direct: list[bytes] = field(default_factory=list)
    """Those of them that did not come from the iterator."""

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    @property
    def events(self) -> list[tuple[str | None, Any]]:
        """(name, JSON data) of each event; data that is no JSON as text."""
        found: list[tuple[str | None, Any]] = []
        for block in self.raw.decode().split("\n\n")[:-1]:
            lines = dict(line.split(": ", 1) for line in block.split("\n"))
            data = lines["data"]
            found.append((lines.get("event"), data if data == "[DONE]" else json.loads(data)))
        return found


class Beside(DirectWrite):
    """Writes beside the iterator; the client takes what is written at once, but not always.

    Args:
        writes: gets what is written; as long as it is empty nothing is written beside it.
        beside: gets the same.
        takes: whether the client does, time after time.
    """

    def __init__(self, writes: list[bytes], beside: list[bytes], takes: Sequence[bool]) -> None:
        self.last_s = 0.0
        self.writes, self.beside = writes, beside
        self.takes = itertools.cycle(takes)

    @property
    def is_free(self) -> bool:  # type: ignore[override]
        return bool(self.writes) and next(self.takes)

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        self.beside.append(data)


def status_of(error: Exception) -> int:
    """As the server answers."""
    kinds: Mapping[type[Exception], int] = {
        NotFound: 404,
        DeadlineExceeded: 503,
        RequestError: 400,
        EngineBusy: 429,
        EngineUnavailable: 503,
    }
    return next((status for kind, status in kinds.items() if isinstance(error, kind)), 500)


async def in_threads(function: Callable[..., Any], *arguments: Any) -> Any:
    """In no thread: nobody waits for the event loop here."""
    return function(*arguments)


def view_of(engine: AsyncEngine) -> ServiceView:
    return ServiceView(
        engine=engine, model_names=(MODEL, "other"), options={}, created_s=0, in_threads=in_threads
    )


def endpoint_of(protocol: Protocol, engine: AsyncEngine, name: str = "") -> Endpoint:
    """The endpoint ``METHOD path``; the first one without a name."""
    for endpoint in protocol.endpoints(view_of(engine)):
        if name in ("", f"{endpoint.method} {endpoint.path}"):
            return endpoint
    raise AssertionError(f"no endpoint {name}")


async def ask_async(
    protocol: Protocol,
    body: dict[str, Any],
    engine: AsyncEngine,
    *,
    at: str = "",
    key_label: str = "",
    path_values: Mapping[str, str] | None = None,
    takes: Sequence[bool] = (True, False, True, True),
) -> Reply:
    """Answer a call as the server would; see ``Beside`` for ``takes``."""
    endpoint = endpoint_of(protocol, engine, at)
    call = HttpCall(
        request_id="req-1",
        key_label=key_label,
        headers={},
        path_values=path_values or {},
        body=body,
    )
    writes: list[bytes] = []
    beside: list[bytes] = []

    try:
        answer = await endpoint.handle(call)
        if isinstance(answer, JsonAnswer):
            return Reply(answer.status, answer.content, call.notes)
        if answer.begin is not None:
            answer.begin(Beside(writes, beside, takes))
        async for part in answer.events:
            writes.append(part)  # noqa: PERF401 - what came before an error counts
    except DeepInferError as error:
        status = status_of(error)
        if writes:
            writes.append(endpoint.dialect.error_event(error, status, call.request_id))
        else:
            raw = endpoint.dialect.error_body(error, status, call.request_id)
            return Reply(status, raw, call.notes)
    return Reply(200, b"".join(writes), call.notes, writes, beside)


def ask(
    protocol: Protocol, body: dict[str, Any], engine: AsyncEngine | None = None, **more: Any
) -> Reply:
    """The same, in an event loop of its own."""
    return asyncio.run(ask_async(protocol, body, engine or ScriptedEngine(), **more))
