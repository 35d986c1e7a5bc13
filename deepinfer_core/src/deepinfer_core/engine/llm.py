"""How does a program get text from a checkpoint?

::

    with LLM("path/to/checkpoint") as llm:
        [done] = llm.generate("Once upon a time", SamplingParams(temperature=0, max_tokens=50))
        print(done.text)

One thread at a time; the caller's thread does the work. Several ``LLM`` in one process share
nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from deepinfer_core.engine.conversation import ConversationEncoder, ThinkingEffort
from deepinfer_core.engine.outputs import Completion, Delta
from deepinfer_core.engine.prompts import Prompt, pair_params, read_prompts
from deepinfer_core.engine.results import refusal
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import DeepInferError, EngineError, RequestError

if TYPE_CHECKING:
    from deepinfer_core.config import LoadedSettings
    from deepinfer_core.engine.core import Engine
    from deepinfer_core.engine.loading import Loaded
    from deepinfer_core.engine.tokenizer import Tokenizer
    from deepinfer_core.telemetry.progress import ProgressStream

__all__ = ["LLM"]


@dataclass(slots=True, eq=False)
class _Call:
    """One call of ``stream``: what it waits for, and what came for it."""

    open_ids: set[int] = field(default_factory=set)
    inbox: deque[Delta] = field(default_factory=deque)
    dropped: EngineError | None = None


class LLM:
    """A loaded checkpoint.

    Args:
        model: folder of the checkpoint; None takes ``model.path`` of the settings, or the one that
            an installed distribution ships.
        config: TOML or YAML file with settings.
        progress: told about loading.
        overrides: settings by key (``device="cpu"``); those of the section ``engine`` without its
            name (``max_num_seqs=4``), and ``numerics`` of the section ``model``; others as nested
            tables (``components={"sampler": {"use": "acme.sampler"}}``).

    Raises:
        ConfigError: a setting or the checkpoint's config cannot be used.
        PluginError: a component is missing.
        WeightsError: the checkpoint is missing or damaged.
        DeviceError: there is not enough memory.
        NotSupported: a component lacks a format or width of this model.
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

        file = None if config is None else Path(config)
        self._open(load_settings(file, api=_by_path(model, overrides)), progress)

    @classmethod
    def from_settings(cls, loaded: LoadedSettings, progress: ProgressStream | None = None) -> Self:
        """Build from settings that were read before; raises what ``LLM`` raises."""
        llm = cls.__new__(cls)
        llm._open(loaded, progress)
        return llm

    def _open(self, loaded: LoadedSettings, progress: ProgressStream | None) -> None:
        from deepinfer_core.engine.loading import load_engine

        self._loaded: Loaded | None = load_engine(loaded, progress)
        self._calls: dict[int, _Call] = {}
        self._encoder: ConversationEncoder | None = None

    @property
    def loaded(self) -> Loaded:
        """What the engine was made from.

        Raises:
            EngineError: it was closed.
        """
        if self._loaded is None:
            raise EngineError("this LLM was closed", hint="make a new one")
        return self._loaded

    @property
    def engine(self) -> Engine:
        """The step loop; raises like ``loaded``."""
        return self.loaded.engine

    @property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's tokenizer.

        Raises:
            RequestError: it has none.
        """
        found = self.engine.tokenizer
        if found is None:
            raise RequestError(
                "this checkpoint has no tokenizer.json, so it takes no text",
                hint="give token ids",
            )
        return found

    def encode(self, text: str) -> list[int]:
        """Token ids of a text as a prompt: the beginning-of-sequence token, then ordinary tokens.

        The spelling of a control token in the text is ordinary text. An empty text has no tokens.

        Raises:
            RequestError: the checkpoint has no tokenizer.
        """
        ids = self.tokenizer.encode(text)
        return [self.loaded.config.bos_token_id, *ids] if ids else []

    def generate(
        self,
        prompts: str | Sequence[Prompt] | None = None,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        prompt_token_ids: Sequence[Sequence[int]] | None = None,
    ) -> list[Completion]:
        """Run requests to their ends.

        Args:
            prompts: one text or several; token ids may stand among them in place of a text.
            sampling_params: one for all, or one for each; None: the defaults. Each request without
                a seed draws its own.
            prompt_token_ids: a list of ids for each prompt; wins over ``prompts``. Taken as it is:
                no token is added.

        Returns:
            One completion for each prompt, in their order. A request that failed has ``error``; the
            others are unharmed.

        Raises:
            RequestError: the arguments do not fit together; nothing was run.
            EngineError: the LLM was closed.
        """
        found: dict[int, Completion] = {}
        for delta in self.stream(prompts, sampling_params, prompt_token_ids):
            if delta.completion is not None:
                found[delta.index] = delta.completion
        return [found[index] for index in sorted(found)]

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling_params: SamplingParams | None = None,
        *,
        thinking: ThinkingEffort = "off",
    ) -> Completion:
        """Answer one conversation.

        Args:
            messages: each with ``role`` and ``content``.
            sampling_params: None: the defaults.
            thinking: with an effort, the text begins with the reasoning; see
                ``conversation.split_answer``.

        Raises:
            RequestError: the messages are malformed.
            ConfigError: the chat extra is not installed.
            WeightsError: the tokenizer has no chat form.
            EngineError: the LLM was closed.
        """
        ids = self.encode_chat(messages, thinking)
        [completion] = self.generate(sampling_params=sampling_params, prompt_token_ids=[ids])
        return completion

    def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], thinking: ThinkingEffort = "off"
    ) -> list[int]:
        """Token ids of a conversation, ready for the answer; raises like ``chat``."""
        if self._encoder is None:
            self._encoder = ConversationEncoder(self.tokenizer)
        return self._encoder.encode(messages, thinking)

    def stream(
        self,
        prompts: str | Sequence[Prompt] | None = None,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        prompt_token_ids: Sequence[Sequence[int]] | None = None,
    ) -> Iterator[Delta]:
        """Run requests and give their tokens as they come.

        Arguments are those of ``generate``; they are checked at the call, the work is done while
        iterating. Leaving the iteration aborts what is still running. Several iterations of one
        ``LLM`` may be open at once.

        Returns:
            Deltas of all requests, in the order in which they happen. The last one of each request
            has its completion.

        Raises:
            RequestError, EngineError: as ``generate``.
        """
        engine = self.engine
        asked = read_prompts(prompts, prompt_token_ids)
        params = pair_params(sampling_params, len(asked))
        return self._run(engine, list(zip(asked, params, strict=True)))

    def close(self) -> None:
        """Give back weights and caches. What is running is dropped. May be called again."""
        if self._loaded is not None:
            self._drop_all("the LLM was closed")
        self._loaded = None
        self._encoder = None

    def __enter__(self) -> Self:
        """The LLM itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close."""
        self.close()

    def _run(self, engine: Engine, asked: list[tuple[Prompt, SamplingParams]]) -> Iterator[Delta]:
        call = _Call()
        try:
            for index, (prompt, params) in enumerate(asked):
                self._submit(engine, call, index, prompt, params)
            while call.open_ids or call.inbox or call.dropped:
                while call.inbox:
                    yield call.inbox.popleft()
                if call.dropped is not None:
                    raise call.dropped
                if call.open_ids:
                    self._step(engine)
        except KeyboardInterrupt:
            # The interrupt may have come anywhere: start from a clean state.
            self._drop_all("another call was interrupted")
            raise
        finally:
            for number in call.open_ids:
                self._calls.pop(number, None)
                engine.abort(number)

    def _submit(
        self, engine: Engine, call: _Call, index: int, prompt: Prompt, params: SamplingParams
    ) -> None:
        ids: Sequence[int] = ()
        try:
            ids = self.encode(prompt) if isinstance(prompt, str) else prompt
            number = engine.submit(index, ids, params)
        except DeepInferError as error:
            completion = refusal(index, len(ids), error, load_s=engine.load_s)
            call.inbox.append(Delta(index=index, completion=completion))
            return
        call.open_ids.add(number)
        self._calls[number] = call

    def _drop_all(self, reason: str) -> None:
        """Forget all requests of all open calls; each call learns why."""
        for call in self._calls.values():
            call.dropped = EngineError(f"{reason} while this request ran", hint="ask again")
            call.open_ids = set()
        self._calls = {}
        self.engine.reset()

    def _step(self, engine: Engine) -> None:
        from deepinfer_core.engine.observers import tell_finished

        for update in engine.step():
            call = self._calls[update.sequence_id]
            call.inbox.append(update.delta)
            if update.delta.completion is not None:
                call.open_ids.discard(update.sequence_id)
                del self._calls[update.sequence_id]
                tell_finished(self.loaded.resolution, update)


def _by_path(model: str | Path | None, overrides: Mapping[str, Any]) -> dict[str, object]:
    """Keyword arguments as settings by dotted path."""
    from deepinfer_core.config.settings import EngineSettings

    found: dict[str, object] = {} if model is None else {"model.path": str(model)}
    for name, value in overrides.items():
        section = "engine." if name in EngineSettings.model_fields else ""
        found["model.numerics" if name == "numerics" else f"{section}{name}"] = value
    return found
