"""How does a program get text from a checkpoint?

::

    with LLM("path/to/checkpoint") as llm:
        [done] = llm.generate("Once upon a time", SamplingParams(temperature=0, max_tokens=50))
        print(done.text)

The caller's thread does the work. Several threads may call one ``LLM``: their requests share its
steps. Several ``LLM`` in one process share nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from deepinfer_core.engine.conversation import ConversationEncoder, ThinkingEffort
from deepinfer_core.engine.outputs import Completion
from deepinfer_core.engine.prompts import Prompt, pair_options, pair_params, read_prompts
from deepinfer_core.engine.request_options import RequestOptions
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import EngineError, RequestError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from deepinfer_core.config import LoadedSettings
    from deepinfer_core.engine.core import Engine, Update
    from deepinfer_core.engine.loading import Loaded
    from deepinfer_core.engine.router import Router
    from deepinfer_core.engine.stream import Stream
    from deepinfer_core.engine.tokenizer import Tokenizer
    from deepinfer_core.telemetry.progress import ProgressStream

__all__ = ["LLM"]


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
        from deepinfer_core.engine.loading import load_engine
        from deepinfer_core.engine.router import Router

        self._loaded: Loaded | None = load_engine(loaded, progress)
        self._router: Router = Router(self._loaded.engine, self.encode, self._tell_finished)
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
    def metrics(self) -> CollectorRegistry:
        """Everything that is counted, as a registry of the Prometheus client library.

        This engine's alone; it may be read from any thread, and stays readable after ``close``.
        All names stand in ``docs/metrics.md``.

        Raises:
            EngineError: the LLM was closed.
        """
        return self.engine.instruments.registry

    def metrics_text(self) -> str:
        """The same in the Prometheus text format; raises like ``metrics``."""
        from deepinfer_core.telemetry.registry import exposition

        return exposition(self.metrics)

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
        *,
        options: RequestOptions | Sequence[RequestOptions] | None = None,
    ) -> list[Completion]:
        """Run requests to their ends.

        Args:
            prompts: one text or several; token ids may stand among them in place of a text.
            sampling_params: one for all, or one for each; None: the defaults. Each request without
                a seed draws its own.
            prompt_token_ids: a list of ids for each prompt; wins over ``prompts``. Taken as it is:
                no token is added.
            options: how requests are treated: one for all, or one for each; None: the defaults.

        Returns:
            ``n`` completions for each prompt, one if nothing else is said, in the order of the
            prompts and their samples. A request that failed has ``error``; the others are unharmed.

        Raises:
            RequestError: the arguments do not fit together; nothing was run.
            EngineError: the LLM was closed.
        """
        found: dict[tuple[int, int], Completion] = {}
        for delta in self.stream(prompts, sampling_params, prompt_token_ids, options=options):
            if delta.completion is not None:
                found[delta.index, delta.sample] = delta.completion
        return [found[place] for place in sorted(found)]

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling_params: SamplingParams | None = None,
        *,
        thinking: ThinkingEffort = "off",
        options: RequestOptions | None = None,
    ) -> Completion:
        """Answer one conversation.

        Args:
            messages: each with ``role`` and ``content``.
            sampling_params: None: the defaults.
            thinking: with an effort, the text begins with the reasoning; see
                ``conversation.split_answer``.
            options: how the request is treated; None: the defaults.

        Raises:
            RequestError: the messages are malformed, or several answers are asked for.
            ConfigError: the chat extra is not installed.
            WeightsError: the tokenizer has no chat form.
            EngineError: the LLM was closed.
        """
        if sampling_params is not None and sampling_params.n > 1:
            raise RequestError(
                f"n is {sampling_params.n}, and chat gives one answer",
                hint="give what encode_chat returns to generate",
            )
        ids = self.encode_chat(messages, thinking)
        [completion] = self.generate(
            sampling_params=sampling_params, prompt_token_ids=[ids], options=options
        )
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
        *,
        options: RequestOptions | Sequence[RequestOptions] | None = None,
    ) -> Stream:
        """Run requests and give their tokens as they come.

        Arguments are those of ``generate``; they are checked at the call, the work is done while
        iterating. Several streams of one ``LLM`` may be open at once.

        Returns:
            An iterator over the deltas of all requests; closing it aborts what still runs.

        Raises:
            RequestError, EngineError: as ``generate``.
        """
        from deepinfer_core.engine.stream import Stream

        _ = self.engine
        asked = read_prompts(prompts, prompt_token_ids)
        params = pair_params(sampling_params, len(asked))
        chosen = pair_options(options, len(asked))
        return Stream(self._router, zip(asked, params, chosen, strict=True))

    def close(self) -> None:
        """Give back weights and caches. What is running is dropped. May be called again."""
        if self._loaded is not None:
            self._router.close("the LLM was closed")
        self._loaded = None
        self._encoder = None

    def __enter__(self) -> Self:
        """The LLM itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close."""
        self.close()

    def _tell_finished(self, update: Update) -> None:
        from deepinfer_core.engine.observers import tell_finished

        tell_finished(self.loaded.resolution, update)
