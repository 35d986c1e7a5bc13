"""How does a program that runs an event loop get text from a checkpoint?

::

    async with AsyncLLM("path/to/checkpoint") as llm:
        async with await llm.submit("Once upon a time", SamplingParams(max_tokens=50)) as stream:
            async for delta in stream:
                print(delta.text, end="")

A thread of its own does the work, so nothing here blocks a loop but the construction, which loads
the checkpoint. Tasks of any number of loops, in any threads, may use one ``AsyncLLM``.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from deepinfer_core.engine.async_stream import AsyncStream
from deepinfer_core.engine.conversation import ThinkingEffort
from deepinfer_core.engine.engine_thread import Ask, EngineThread
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.outputs import Completion
from deepinfer_core.engine.prompts import Prompt, pair_options, pair_params, read_prompts
from deepinfer_core.engine.request_options import RequestOptions
from deepinfer_core.engine.router import Call
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.seats import Seats
from deepinfer_core.errors import DeepInferError, EngineError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from deepinfer_core.config import LoadedSettings
    from deepinfer_core.engine.loading import Loaded
    from deepinfer_core.engine.router import Router
    from deepinfer_core.engine.tokenizer import Tokenizer
    from deepinfer_core.telemetry.progress import ProgressStream

__all__ = ["AsyncLLM"]

_LONG_TEXT = 4096
"""Characters that take about a millisecond to encode; longer texts are encoded beside the loop."""


class AsyncLLM:
    """A loaded checkpoint that works in a thread of its own.

    The arguments are those of ``LLM``, and so is what is raised; ``engine.max_queued`` says how
    many answers may be in work.

    ``close`` it, or use ``async with``. One that is let go of, or still open when the program ends,
    ends what runs.

    Args:
        model: see ``LLM``.
        config: see ``LLM``.
        progress: see ``LLM``.
        overrides: see ``LLM``.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        config: str | Path | None = None,
        progress: ProgressStream | None = None,
        **overrides: Any,
    ) -> None:
        from deepinfer_core.config import load_settings
        from deepinfer_core.engine.keywords import settings_by_path

        file = None if config is None else Path(config)
        self._open(load_settings(file, api=settings_by_path(model, overrides)), progress)

    @classmethod
    def from_settings(cls, loaded: LoadedSettings, progress: ProgressStream | None = None) -> Self:
        """Build from settings that were read before; raises what ``LLM`` raises."""
        llm = cls.__new__(cls)
        llm._open(loaded, progress)
        return llm

    def _open(self, loaded: LoadedSettings, progress: ProgressStream | None) -> None:
        from deepinfer_core.engine.observers import tell_finished
        from deepinfer_core.engine.router import Router

        llm = LLM.from_settings(loaded, progress)
        router = Router(llm.engine, llm.encode, partial(tell_finished, llm.loaded.resolution))
        self._start(llm, router, loaded.settings.engine.max_queued)

    def _start(self, llm: LLM, router: Router, places: int) -> None:
        self._llm = llm
        self._seats = Seats(places)
        self._thread = EngineThread(router, self._seats.wake)
        stop = weakref.finalize(self, self._thread.stop, "the AsyncLLM was let go of")
        # The end of the program stops the thread itself, and waits for it.
        stop.atexit = False

    @property
    def loaded(self) -> Loaded:
        """What the engine was made from; nobody but its thread may use the engine.

        Raises:
            EngineError: it was closed.
        """
        return self._llm.loaded

    @property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's tokenizer; raises like ``LLM.tokenizer``."""
        return self._llm.tokenizer

    @property
    def in_work(self) -> int:
        """Answers that are running or waiting, those included that are about to be queued."""
        return self._seats.room.used

    @property
    def failure(self) -> EngineError | None:
        """Why the engine died; None while it is well, and after ``close``."""
        return self._thread.failure

    @property
    def metrics(self) -> CollectorRegistry:
        """Everything that is counted; see ``LLM.metrics``."""
        return self._llm.metrics

    def metrics_text(self) -> str:
        """The same in the Prometheus text format; see ``LLM.metrics``."""
        return self._llm.metrics_text()

    def encode(self, text: str) -> list[int]:
        """Token ids of a text as a prompt; see ``LLM.encode``."""
        return self._llm.encode(text)

    def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], thinking: ThinkingEffort = "off"
    ) -> list[int]:
        """Token ids of a conversation, ready for the answer; see ``LLM.encode_chat``."""
        return self._llm.encode_chat(messages, thinking)

    async def submit(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        options: RequestOptions | None = None,
        wait: bool = True,
    ) -> AsyncStream:
        """Ask for something, as soon as there is room.

        Args:
            prompt: a text, or token ids.
            sampling_params: how to draw; None: the defaults.
            options: how the request is treated; None: the defaults. Its time counts from when it
                has room.
            wait: for room; otherwise the request is refused if there is none now.

        Returns:
            A stream of its deltas. A request that the engine refuses has one, with the error in its
            completion.

        Raises:
            RequestError: an argument is of another type, or more answers are asked for than may be
                in work.
            EngineBusy: ``wait`` is False, and ``engine.max_queued`` answers are in work.
            EngineError: it was closed, or the engine died.
        """
        [asked] = read_prompts([prompt], None)
        [params] = pair_params(sampling_params, 1)
        [chosen] = pair_options(options, 1)
        return await self._submit(0, asked, params, chosen, wait=wait)

    async def generate(
        self,
        prompts: str | Sequence[Prompt] | None = None,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        prompt_token_ids: Sequence[Sequence[int]] | None = None,
        *,
        options: RequestOptions | Sequence[RequestOptions] | None = None,
    ) -> list[Completion]:
        """Run requests to their ends; a cancellation ends them all.

        Arguments and results are those of ``LLM.generate``. There may be more prompts than answers
        may be in work: the rest wait for room.

        Raises:
            RequestError: the arguments do not fit together; nothing was run.
            EngineError: it was closed, or the engine failed.
        """
        asked = read_prompts(prompts, prompt_token_ids)
        params = pair_params(sampling_params, len(asked))
        chosen = pair_options(options, len(asked))
        for one in params:
            self._seats.room.check(one.n)
        streams: list[AsyncStream] = []
        try:
            for index, request in enumerate(zip(asked, params, chosen, strict=True)):
                streams.append(await self._submit(index, *request, wait=True))
            return [done for stream in streams for done in await stream.result()]
        finally:
            for stream in streams:
                stream.abort()

    async def close(self) -> None:
        """End what runs, as aborted with the reason, and give back weights and caches.

        Waits for the step that runs. May be called again, from any loop.
        """
        self._thread.stop("the AsyncLLM was closed")
        await self._thread.ended()
        self._llm.close()

    async def __aenter__(self) -> Self:
        """The AsyncLLM itself."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close."""
        await self.close()

    async def _submit(
        self,
        index: int,
        prompt: Prompt,
        params: SamplingParams,
        options: RequestOptions,
        *,
        wait: bool,
    ) -> AsyncStream:
        thread, seats = self._thread, self._seats
        thread.check()
        await seats.room.take(params.n, wait=wait)
        inbox = seats.new_inbox(params.n)
        call = Call(receive=inbox.receive, drop=inbox.drop)
        try:
            prompt = await self._encoded(prompt)
            thread.ask(Ask(call=call, index=index, prompt=prompt, params=params, options=options))
        except BaseException:
            seats.give_back(params.n)
            raise
        return AsyncStream(inbox, partial(thread.abort, call, index), thread.check, owner=self)

    async def _encoded(self, prompt: Prompt) -> Prompt:
        """Token ids; a text that has none is left to be refused like any other bad request."""
        if not isinstance(prompt, str):
            return prompt
        try:
            if len(prompt) < _LONG_TEXT:
                return self._llm.encode(prompt)
            return await asyncio.to_thread(self._llm.encode, prompt)
        except DeepInferError:
            return prompt
