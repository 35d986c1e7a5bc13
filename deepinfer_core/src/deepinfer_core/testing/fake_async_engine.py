"""Which engine answers requests in a test of a server, without a model and without a process?

``FakeAsyncEngine`` gives the tokens that a test says, or random ordinary ones, at the pace that a
test says. It counts what it holds, so that a request that nobody ended shows. Its tokenizer is that
of ``fakes.byte_tokenizer_source``: one token for each byte, and the control tokens of the family.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from itertools import islice

from deepinfer_core.engine.outputs import FinishReason
from deepinfer_core.errors import (
    DeadlineExceeded,
    DeepInferError,
    EngineBusy,
    EngineError,
    EngineUnavailable,
    RequestError,
)
from deepinfer_core.interfaces.async_engine import (
    AsyncEngine,
    EngineFacts,
    EngineState,
    Finished,
    GenerateRequest,
    Item,
    Started,
    Tokens,
)
from deepinfer_core.testing.fake_answers import (
    VOCABULARY,
    Answer,
    answer_steps,
    made_up_logprobs,
    random_answer,
)
from deepinfer_core.testing.fakes import byte_tokenizer_source

__all__ = ["FakeAsyncEngine"]

_CACHE_BLOCK_TOKENS = 8


@dataclass(slots=True, eq=False)
class _InWork:
    """One request: what came of it so far."""

    request: GenerateRequest
    deadline: float | None
    turn: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self, awaitable: Coroutine[object, object, object]) -> bool:
        """Wait for something, until the request is ended; whether it came.

        Raises:
            DeadlineExceeded: its time is over.
        """
        waits = [asyncio.create_task(awaitable), asyncio.create_task(self.ended.wait())]
        try:
            async with asyncio.timeout_at(self.deadline):
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return waits[0].done()
        except TimeoutError:
            raise DeadlineExceeded(f"{self.request.timeout_s} s are over") from None
        finally:
            for wait in waits:
                wait.cancel()


class FakeAsyncEngine(AsyncEngine):
    """Answers by a script, in the event loop that asks.

    Args:
        answer: gives the answer to a request.
        step_s: seconds before each step; 0 lets other tasks run and no more.
        tokens_per_step: of one request.
        places: requests that run at once; others wait in the order of their arrival.
        max_queued: requests in work before others are refused.
        max_model_len: longest prompt and output.
        grammar_kinds: kinds of grammar that are taken; what is drawn does not follow them.
        failure: called with a request and the number of its tokens before each step, also before
            the first one; an error that it gives ends the request.

    Attributes:
        requests: all that were accepted, in order.
        most_in_work: most of them at once.
        outcomes: how each one that is over ended: a finish reason, ``failed``, or ``closed`` if
            its iterator was closed or whoever waited was cancelled.
    """

    def __init__(
        self,
        answer: Callable[[GenerateRequest], Answer] = random_answer,
        *,
        step_s: float = 0.0,
        tokens_per_step: int = 1,
        places: int = 16,
        max_queued: int = 1024,
        max_model_len: int = 8192,
        grammar_kinds: tuple[str, ...] = (),
        failure: Callable[[GenerateRequest, int], DeepInferError | None] | None = None,
    ) -> None:
        self.answer = answer
        self.step_s = step_s
        self.tokens_per_step = tokens_per_step
        self.max_queued = max_queued
        self.failure = failure
        self.requests: list[GenerateRequest] = []
        self.outcomes: dict[str, str] = {}
        self.most_in_work = 0
        self._places = places
        self._running, self._idle = asyncio.Event(), asyncio.Event()
        self._running.set()
        self._idle.set()
        self._state: EngineState = "ready"
        self._in_work: dict[str, _InWork] = {}
        self._cached: set[tuple[str, tuple[int, ...]]] = set()
        self._facts = EngineFacts(
            model="fake",
            tokenizer_json=byte_tokenizer_source(),
            max_model_len=max_model_len,
            vocabulary=VOCABULARY,
            grammar_kinds=grammar_kinds,
            components={"sampler": "fake.script"},
            report={"places": places},
        )

    @property
    def state(self) -> EngineState:
        """``ready`` until somebody drains, closes or ``become``s otherwise."""
        return self._state

    @property
    def facts(self) -> EngineFacts:
        """Of the byte tokenizer.

        Raises:
            EngineUnavailable: the state is ``loading``.
        """
        if self._state == "loading":
            raise EngineUnavailable("the engine is loading")
        return self._facts

    @property
    def in_work(self) -> int:
        """Requests that run or wait."""
        return len(self._in_work)

    def become(self, state: EngineState) -> None:
        """Change the state; ``dead`` fails what is in work."""
        self._state = state

    def pause(self) -> None:
        """Begin no step until ``resume``; requests are taken, and wait."""
        self._running.clear()

    def resume(self) -> None:
        """Go on."""
        self._running.set()

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Item]:
        """Answer a request; see ``AsyncEngine``."""
        self._check(request)
        now = asyncio.get_running_loop().time()
        deadline = None if request.timeout_s is None else now + request.timeout_s
        work = _InWork(request, deadline)
        self._in_work[request.request_id] = work
        self._idle.clear()
        self.requests.append(request)
        self.most_in_work = max(self.most_in_work, len(self._in_work))
        self._let_in()
        outcome = "closed"
        try:
            await work.wait(work.turn.wait())
            async for item in self._items(work):
                if isinstance(item, Finished):
                    # Whoever takes the last item finds nothing of the request left.
                    self._forget(work, item.reason)
                yield item
        except DeepInferError:
            outcome = "failed"
            raise
        finally:
            self._forget(work, outcome)

    def abort(self, request_id: str) -> bool:
        """End a request before its next step."""
        if request_id not in self._in_work:
            return False
        self._in_work[request_id].ended.set()
        return True

    async def metrics_text(self) -> str:
        """One metric, as long as there is an engine."""
        if self._state in ("loading", "dead"):
            return ""
        name = "deepinfer_requests_running"
        return f"# HELP {name} Requests.\n# TYPE {name} gauge\n{name} {self.in_work}.0\n"

    async def drain(self, seconds: float) -> bool:
        """Wait for what is in work, then end it."""
        self._state = "draining"
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            for request_id in tuple(self._in_work):
                self.abort(request_id)
            return False
        return True

    async def close(self) -> None:
        """Become ``dead``."""
        self.become("dead")
        self.resume()

    def _check(self, request: GenerateRequest) -> None:
        if self._state != "ready":
            raise EngineUnavailable(f"the engine is {self._state}")
        if len(self._in_work) >= self.max_queued:
            raise EngineBusy(f"{self.max_queued} requests are in work", hint="ask again later")
        prompt, facts = request.prompt_token_ids, self._facts
        if request.request_id in self._in_work:
            raise RequestError(f"a request {request.request_id} is in work")
        if not prompt or not all(0 <= token < facts.vocabulary for token in prompt):
            raise RequestError("the prompt is empty, or has ids that are no tokens")
        if len(prompt) >= facts.max_model_len:
            raise RequestError(f"the prompt has {len(prompt)} tokens")
        grammar = request.params.grammar_request
        if grammar is not None and grammar.kind not in facts.grammar_kinds:
            raise RequestError(f"no component takes grammars of kind {grammar.kind}")

    async def _items(self, work: _InWork) -> AsyncIterator[Item]:
        request = work.request
        prompt = request.prompt_token_ids
        cached = count = 0
        reason: FinishReason = "abort"
        steps: Iterator[tuple[Tokens, FinishReason | None]] = iter(())
        if await self._step(work, 0):
            cached = self._lookup(request.cache_salt, prompt)
            yield Started(prompt_tokens=len(prompt), cached_tokens=cached)
            room = min(request.params.max_tokens, self._facts.max_model_len - len(prompt))
            steps = answer_steps(request, self.answer(request), room, self.tokens_per_step)
        for tokens, end in steps:
            if not await self._step(work, count):
                break
            count += len(tokens.token_ids)
            reason = end or reason
            yield tokens
        scored = request.params.prompt_alternatives
        yield Finished(
            reason=reason,
            prompt_tokens=len(prompt),
            cached_tokens=cached,
            completion_tokens=count,
            prompt_logprobs=None
            if scored is None
            else (None, *made_up_logprobs(prompt[1:], scored)),
        )

    async def _step(self, work: _InWork, count: int) -> bool:
        """Wait for the next step of a request; whether it takes part."""
        if work.ended.is_set() or not await work.wait(self._pace()):
            return False
        if self._state == "dead":
            raise EngineError("the engine died")
        error = self.failure(work.request, count) if self.failure else None
        if error is not None:
            raise error
        return True

    async def _pace(self) -> None:
        await asyncio.sleep(self.step_s)
        await self._running.wait()

    def _forget(self, work: _InWork, outcome: str) -> None:
        name = work.request.request_id
        if self._in_work.get(name) is work:
            del self._in_work[name]
            self.outcomes[name] = outcome
            self._let_in()
        if not self._in_work:
            self._idle.set()

    def _let_in(self) -> None:
        for work in islice(self._in_work.values(), self._places):
            work.turn.set()

    def _lookup(self, salt: str, prompt: tuple[int, ...]) -> int:
        """Tokens of whole blocks that a prompt of the same salt had; remembers this one's."""
        ends = range(_CACHE_BLOCK_TOKENS, len(prompt), _CACHE_BLOCK_TOKENS)
        cached = max((end for end in ends if (salt, prompt[:end]) in self._cached), default=0)
        self._cached |= {(salt, prompt[:end]) for end in ends}
        return cached
