"""Which engine answers requests in a test of a server, without a model and without a process?

``FakeAsyncEngine`` gives the tokens that a test says, or random ordinary ones, at the pace that a
test says. It counts what it holds, so that a request that nobody ended shows. Its tokenizer is that
of ``byte_tokenizer_source``, unless a test says otherwise. Without a pace, a request of a
``Script`` costs next to nothing, so that it can stand behind a server whose time is measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import islice
from typing import Any

from deepinfer_core.engine.outputs import FinishReason
from deepinfer_core.errors import (
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
)
from deepinfer_core.testing.byte_tokenizer import byte_facts
from deepinfer_core.testing.fake_answers import (
    Answer,
    Script,
    prompt_logprobs,
    random_answer,
    script_of,
)
from deepinfer_core.testing.fake_request import InWork

__all__ = ["FakeAsyncEngine"]

_CACHE_BLOCK_TOKENS = 8


class FakeAsyncEngine(AsyncEngine):
    """Answers by a script, in the event loop that asks.

    Args:
        answer: gives the answer to a request.
        step_s: seconds before each step; 0 lets other tasks run and no more.
        tokens_per_step: of one request.
        places: requests that run at once; others wait in the order of their arrival.
        max_queued: requests in work before others are refused.
        failure: called with a request and the number of its tokens before each step, also before
            the first one; an error that it gives ends the request.
        facts: of ``EngineFacts``, where they are not to be those of the byte tokenizer; what is
            drawn does not follow grammars, whatever their kind.

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
        failure: Callable[[GenerateRequest, int], DeepInferError | None] | None = None,
        **facts: Any,
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
        self._is_disturbed = False
        self._in_work: dict[str, InWork] = {}
        self._cached: set[tuple[str, tuple[int, ...]]] = set()
        components = {"sampler": "fake.script"}
        named = {"components": components, "report": {"places": places}, **facts}
        self._facts = byte_facts(**named)

    @property
    def state(self) -> EngineState:
        """``ready`` until somebody drains, closes or ``become``s otherwise."""
        return self._state

    @property
    def facts(self) -> EngineFacts:
        """Of the byte tokenizer, or as was said.

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
        self._is_disturbed = state == "dead" or not self._running.is_set()

    def pause(self) -> None:
        """Begin no step until ``resume``; requests are taken, and wait."""
        self._running.clear()
        self._is_disturbed = True

    def resume(self) -> None:
        """Go on."""
        self._running.set()
        self._is_disturbed = self._state == "dead"

    def forget(self) -> None:
        """Keep nothing of requests that are over, nor of their prompts."""
        for kept in (self.requests, self.outcomes, self._cached):
            kept.clear()

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Item]:
        """Answer a request; see ``AsyncEngine``."""
        self._check(request)
        work, outcome = self._taken(request), "closed"
        is_paced = self.step_s > 0 or work.deadline is not None or self.failure is not None
        prompt_tokens, taker = len(request.prompt_token_ids), request.taker
        cached = count = 0
        try:
            if not work.turn.is_set():
                await work.wait(work.turn.wait())
            script = await self._begin(work)
            if script.starts:
                cached = self._cached_tokens(request, script)
                yield Started(prompt_tokens=prompt_tokens, cached_tokens=cached)
            reason: FinishReason = "abort"
            for tokens in script.steps:
                # Servers are measured with what is done in here for every token of everybody.
                if is_paced or self._is_disturbed:
                    if not await self._step(work, count):
                        break
                else:
                    await asyncio.sleep(0)
                    if work.ended_by is not None:
                        break
                count += len(tokens.token_ids)
                if taker is None or not taker(tokens.token_ids, tokens.text, tokens.logprobs):
                    yield tokens
            else:
                if script.failure is not None:
                    raise script.failure
                reason = script.reason
            # Whoever takes the last item finds nothing of the request left.
            self._forget(work, reason)
            yield Finished(
                reason=reason,
                aborted_by=work.ended_by or script.aborted_by if reason == "abort" else None,
                prompt_tokens=prompt_tokens,
                cached_tokens=cached,
                completion_tokens=count,
                prompt_logprobs=prompt_logprobs(request),
            )
        except DeepInferError:
            outcome = "failed"
            raise
        finally:
            self._forget(work, outcome)

    def abort(self, request_id: str) -> bool:
        """End a request before its next step."""
        if request_id not in self._in_work:
            return False
        self._in_work[request_id].end("operator")
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
            for work in tuple(self._in_work.values()):
                work.end("shutdown")
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

    def _taken(self, request: GenerateRequest) -> InWork:
        """A request of which is known that nothing is wrong with it."""
        now = asyncio.get_running_loop().time()
        deadline = None if request.timeout_s is None else now + request.timeout_s
        work = InWork(request, deadline)
        self._in_work[request.request_id] = work
        self._idle.clear()
        self.requests.append(request)
        self.most_in_work = max(self.most_in_work, len(self._in_work))
        self._let_in()
        return work

    async def _begin(self, work: InWork) -> Script:
        """Wait for the first step of a request; what it gets."""
        if not await self._step(work, 0):
            return Script(reason="abort", starts=False)
        request = work.request
        left = self._facts.max_model_len - len(request.prompt_token_ids)
        room = min(request.params.max_tokens, left)
        return script_of(request, self.answer(request), room, self.tokens_per_step)

    async def _step(self, work: InWork, count: int) -> bool:
        """Wait for the next step of a request; whether it takes part."""
        if self.step_s == 0 and work.deadline is None and self._running.is_set():
            await asyncio.sleep(0)
        elif work.ended_by is not None or not await work.wait(self._pace()):
            return False
        if work.ended_by is not None:
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

    def _forget(self, work: InWork, outcome: str) -> None:
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

    def _cached_tokens(self, request: GenerateRequest, script: Script) -> int:
        """Tokens of whole blocks that a prompt of the same salt had; remembers this one's."""
        salt, prompt = request.cache_salt, request.prompt_token_ids
        ends = range(_CACHE_BLOCK_TOKENS, len(prompt), _CACHE_BLOCK_TOKENS)
        cached = max((end for end in ends if (salt, prompt[:end]) in self._cached), default=0)
        self._cached |= {(salt, prompt[:end]) for end in ends}
        return cached if script.cached is None else script.cached
