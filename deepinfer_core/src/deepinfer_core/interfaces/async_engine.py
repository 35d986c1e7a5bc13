"""What does a protocol ask of an engine, and what comes back?

Whoever takes requests from outside sees the engine through this alone, wherever it runs: in the
same process, or in one of its own behind a channel. Token ids go in and come out; the text beside
them is for protocols that hand on plain text.

What every engine keeps:

* Items come in order on the event loop that asked: ``Started`` once, then ``Tokens``, then
  ``Finished``. What can be known to be wrong before a request starts is raised before ``Started``.
* A consumer that is slow gets fewer, longer ``Tokens``; it holds up nobody, and nothing is lost.
* A request may name a taker, which is offered ``Tokens`` at the moment they come, if somebody waits
  for them. So what one step gives many requests is handed out without waking anybody.
* Closing the iterator, or cancelling whoever waits for it, ends the request and frees what it
  holds, in whatever state it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from deepinfer_core.engine.outputs import FinishReason, TokenLogprob
    from deepinfer_core.engine.sampling_params import SamplingParams

__all__ = [
    "AbortedBy",
    "AsyncEngine",
    "EngineFacts",
    "EngineState",
    "Finished",
    "GenerateRequest",
    "Item",
    "Started",
    "Taker",
    "Tokens",
]

EngineState = Literal["loading", "ready", "draining", "dead"]
"""``dead``: it cannot take requests; whoever runs it may be starting another one."""


Taker = Callable[[tuple[int, ...], str, "tuple[TokenLogprob, ...]"], bool]
"""Takes the fields of ``Tokens``; whether it did."""

AbortedBy = Literal["client", "deadline", "operator", "shutdown"]
"""Who ended a request before its end: its caller, by going away or closing the iterator; its time;
somebody who named it (``abort``); or a service that stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """One prompt and one answer to it.

    Attributes:
        request_id: for logs, and for ``abort``; no two requests in work have the same.
        prompt_token_ids: at least one.
        params: how to draw; ``n`` is 1.
        cache_salt: who may share cached prefixes: requests with the same salt only.
        retention: class of traffic; see ``RequestOptions``. None: whatever is usual for its caller.
        priority: higher goes first; see ``RequestOptions``.
        timeout_s: it ends after so many seconds in the engine; None: it may take as long as it
            takes.
        taker: is offered the fields of ``Tokens`` on the event loop while somebody waits for the
            next item; what it takes (then it says True) the iterator does not give. It never waits;
            what it raises the iterator raises. An engine need not have one who takes: it may ask
            nobody.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    cache_salt: str = ""
    retention: str | None = None
    priority: int = 0
    timeout_s: float | None = None
    taker: Taker | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Started:
    """The first row of the request is scheduled.

    Attributes:
        prompt_tokens: tokens of the prompt.
        cached_tokens: those of them that were found in the cache.
    """

    prompt_tokens: int
    cached_tokens: int


@dataclass(slots=True)
class Tokens:
    """What one step, or several, added; nobody changes it.

    It is not frozen because a frozen one takes several times as long to make, and one is made for
    every step of every request.

    Attributes:
        token_ids: drawn tokens in order, a token that ends the request included.
        text: new text, without stop strings and control tokens; it never ends within a character.
        logprobs: one for each of ``token_ids``, if asked for.
    """

    token_ids: tuple[int, ...]
    text: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The end of a request; ``error`` is never the reason, it is raised.

    Attributes:
        reason: why it ended.
        aborted_by: who ended it, if the reason is ``abort``.
        prompt_tokens, cached_tokens, completion_tokens: as in ``Usage``.
        drafted_tokens, accepted_tokens: as in ``Usage``.
        prompt_logprobs: one for each token of the prompt, None for the first, if asked for.
        queue_s: from arrival until its first row was scheduled.
    """

    reason: FinishReason
    aborted_by: AbortedBy | None = None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None
    queue_s: float = 0.0


Item = Started | Tokens | Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What holds for a loaded engine.

    Attributes:
        model: name of the checkpoint.
        tokenizer_json: text of its ``tokenizer.json``; None: it has no tokenizer.
        max_model_len: longest prompt plus output in tokens.
        vocabulary: number of token ids.
        grammar_kinds: kinds of grammar that requests may ask for; empty without a component.
        components: component of each slot, by title.
        report: more about it, JSON data: sizes, memory, versions.
    """

    model: str
    tokenizer_json: str | None
    max_model_len: int
    vocabulary: int
    grammar_kinds: tuple[str, ...]
    components: Mapping[str, str]
    report: Mapping[str, Any]


class AsyncEngine(ABC):
    """An engine as protocols see it."""

    @property
    @abstractmethod
    def state(self) -> EngineState:
        """What it can do now."""

    @property
    @abstractmethod
    def facts(self) -> EngineFacts:
        """Of the loaded engine.

        Raises:
            EngineUnavailable: nothing was loaded yet.
        """

    @property
    @abstractmethod
    def in_work(self) -> int:
        """Requests that run or wait."""

    @abstractmethod
    def generate(self, request: GenerateRequest) -> AsyncIterator[Item]:
        """Answer a request.

        Raises, from the iterator:
            RequestError: the request is invalid; ``DeadlineExceeded``: its time is over.
            EngineBusy: as many requests as may be are in work.
            EngineUnavailable: it is loading, draining or dead.
            EngineError: it failed while the request was in work.
        """

    @abstractmethod
    def abort(self, request_id: str) -> bool:
        """End a request soon, as somebody else than its caller wishes; whether it was in work.

        Its iterator ends with ``Finished``, aborted by the ``operator``.
        """

    @abstractmethod
    async def metrics_text(self) -> str:
        """Its metrics in the Prometheus text format; empty while there is no engine."""

    @abstractmethod
    async def drain(self, seconds: float) -> bool:
        """Take no more requests and wait for those in work; whether all ended in time.

        Those that did not are ended: with an ``EngineUnavailable``, or with ``Finished``, aborted
        by the ``shutdown``.
        """

    @abstractmethod
    async def close(self) -> None:
        """End everything and give back what it holds. May be called again."""
