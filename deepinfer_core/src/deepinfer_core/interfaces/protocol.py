"""How does a protocol turn an HTTP request into engine calls, and tokens into a response?

The server shell reads requests, checks keys, limits and framing, and writes responses; a protocol
knows what bodies mean. It imports no HTTP library: it names endpoints, gets a call with the body
as JSON data, and gives an answer, whole or as a stream of events.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from deepinfer_core.errors import DeepInferError
    from deepinfer_core.interfaces.async_engine import AsyncEngine

__all__ = [
    "MOST_CHARACTERS_PER_TOKEN",
    "CallNotes",
    "Dialect",
    "DirectWrite",
    "Endpoint",
    "EventAnswer",
    "Handle",
    "HttpAnswer",
    "HttpCall",
    "JsonAnswer",
    "Protocol",
    "ServiceView",
]

MOST_CHARACTERS_PER_TOKEN = 16
"""A protocol encodes texts of at most so many characters for each token of the longest sequence.

Encoding takes 200 bytes of memory a character. Texts have 1 to 5 characters a token, so what is
longer than this would not fit in any case, unless it is long runs of one character.
"""


@dataclass(slots=True, kw_only=True)
class CallNotes:
    """What the access log and the metrics say about a call; no text of anybody goes in here.

    Attributes:
        model: as asked for; only if it is one that is served.
        stream: whether events were asked for.
        prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens: of the answer.
        images: in the request.
        constraint: kind of grammar; empty: none.
        finish_reason: of the answer.
        ended_by: who ended it before its end, in the words of ``AbortedBy``; empty: nobody.
        queue_s, first_token_s: from the arrival of the call.
    """

    model: str = ""
    stream: bool = False
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    images: int = 0
    constraint: str = ""
    finish_reason: str = ""
    ended_by: str = ""
    queue_s: float | None = None
    first_token_s: float | None = None


def _without_limit(sequences: int) -> None:
    """Any number is let in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCall:
    """One request that passed the shell's checks.

    Attributes:
        request_id: of this call; also the engine's, or its beginning.
        key_label: label of the key that it came with; empty: keys are not asked for.
        headers: names in lower case; those that hold keys are left out.
        path_values: what stands for each ``{name}`` of the endpoint's path.
        body: the JSON object of a POST; an empty one otherwise.
        notes: to be filled in.
        claim: told how many sequences the call asks the engine for, before they are asked for, if
            that is not one: they count against the limits of its key. Raises the error that says
            that they are too many.
    """

    request_id: str
    key_label: str
    headers: Mapping[str, str]
    path_values: Mapping[str, str]
    body: dict[str, Any]
    notes: CallNotes = field(default_factory=CallNotes)
    claim: Callable[[int], None] = _without_limit


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonAnswer:
    """A whole response.

    Attributes:
        content: JSON text, unless the headers name another ``content-type``.
        status: of HTTP.
        headers: beside those of the shell, in lower case.
    """

    content: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class DirectWrite(ABC):
    """Writes events of a stream while whoever sends it waits for its next item.

    Attributes:
        is_free: whether that can be done now: the status was sent, and the client takes what it is
            sent. Otherwise the events are left to the iterator.
        last_s: when something was written last, on the clock of the event loop; 0: nothing was.
    """

    __slots__ = ("is_free", "last_s")

    is_free: bool
    last_s: float

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Write whole events, before anything that the iterator gives after this.

        Args:
            data: of at least one event.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class EventAnswer:
    """A stream of server-sent events.

    The status is sent with the first events: what fails before them becomes an error response of
    the dialect, as for any call. If they take longer than one keep-alive interval, the status is
    sent with a keep-alive before them.

    Attributes:
        events: bytes of whole events; what one item holds is written at once. Closed if the client
            goes away.
        begin: is given a way to write beside the iterator before the first item is asked for, where
            the connection has one; None: everything comes from the iterator.
    """

    events: AsyncIterator[bytes]
    begin: Callable[[DirectWrite], None] | None = None


HttpAnswer = JsonAnswer | EventAnswer

Handle = Callable[[HttpCall], Awaitable[HttpAnswer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How errors and keep-alives look.

    Attributes:
        error_body: (error, status, request id) to the JSON text of an error response.
        error_event: (error, status, request id) to the bytes of the event that ends a stream.
        keep_alive: bytes that mean nothing within a stream.
        prefixes: beginnings of paths that speak it, whatever is wrong with a call and whoever
            serves it; elsewhere errors are in the dialect of the endpoint.
    """

    error_body: Callable[[DeepInferError, int, str], bytes]
    error_event: Callable[[DeepInferError, int, str], bytes]
    keep_alive: bytes = b": keep-alive\n\n"
    prefixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One route.

    Attributes:
        method: of HTTP.
        path: ``{name}`` stands for one segment.
        handle: answers a call; what it raises becomes an error response: ``DeepInferError`` by its
            kind, everything else a 500 whose text says nothing.
        dialect: of its errors.
        aliases: other paths of it.
        summary: one line for the description of the service.
        body: JSON schema of the body, for the same; None: any object.
        counts: a POST counts against the limits of its key while it is in work; one that asks the
            engine for no tokens does not, so that a key that is full can still end its calls.
    """

    method: Literal["GET", "POST", "DELETE"]
    path: str
    handle: Handle
    dialect: Dialect
    aliases: tuple[str, ...] = ()
    summary: str = ""
    body: Mapping[str, Any] | None = None
    counts: bool = True


async def _nobody_writes(call: HttpCall) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceView:
    """What a protocol may use of the service.

    Attributes:
        engine: answers requests; it may be restarted behind this object.
        model_names: names under which the model is served, the first one is its own.
        options: settings of ``server.protocol_options`` for this protocol.
        created_s: when the service was started, in seconds of Unix time.
        in_threads: runs a function that would hold up the event loop (parsing of large bodies,
            tokenising) in a thread.
        conversation_tokens: tokens of the prompt with which the body of a call, which has
            ``messages``, would be answered by whichever protocol takes such; None: none here does.
    """

    engine: AsyncEngine
    model_names: tuple[str, ...]
    options: Mapping[str, Any]
    created_s: int
    in_threads: Callable[..., Awaitable[Any]]
    conversation_tokens: Callable[[HttpCall], Awaitable[Sequence[int] | None]] = _nobody_writes


class Protocol(ABC):
    """Endpoints of one protocol.

    A component of kind ``protocol``; its factory is called with options and build context like any
    other's. Any number of them serve side by side.
    """

    @abstractmethod
    def endpoints(self, service: ServiceView) -> Sequence[Endpoint]:
        """Its routes; called once, when the engine is not loaded yet.

        Args:
            service: to answer with.
        """

    def conversation_tokens(self, service: ServiceView, call: HttpCall) -> Sequence[int] | None:
        """Tokens of the prompt with which a body that has ``messages`` would be answered.

        Runs in a thread. One protocol of a service says it for all; the others leave this as it is.

        Args:
            service: as ``endpoints`` was given it.
            call: of any endpoint; its body may name no model.

        Returns:
            None: this protocol answers no such bodies.

        Raises:
            RequestError: the body would be refused.
        """
        return None
