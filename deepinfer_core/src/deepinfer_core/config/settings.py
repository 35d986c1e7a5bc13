"""Which settings exist, what may each be, and what is it when nobody says?

The classes are the schema: their fields are the keys of a configuration file, of ``--set`` and of
the nested ``DEEPINFER_*`` names. Values carry their unit in the name.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from deepinfer_core.config.components import ComponentsSettings, Section
from deepinfer_core.config.kv_store import KvStoreSettings
from deepinfer_core.config.server import LONGEST_WAIT_S, Names, ServerSettings, one_or_many
from deepinfer_core.config.token_ids import TokenIds
from deepinfer_core.interfaces.draft_planner import AcceptanceRule
from deepinfer_core.interfaces.kinds import PROPERTIES
from deepinfer_core.interfaces.numerics import ComputeDtype, Numerics

__all__ = [
    "DrafterSettings",
    "EngineSettings",
    "KernelsSettings",
    "ModelSettings",
    "NumericsSettings",
    "PluginsSettings",
    "Settings",
    "SpeculationSettings",
    "TelemetrySettings",
]

_MOST_THREADS = 4096
"""More than any host has; starting as many as a slip of the keyboard asks for would end it."""

Temperatures = Annotated[
    tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...],
    Field(min_length=1),
    BeforeValidator(one_or_many),
    BeforeValidator(lambda value: (value,) if isinstance(value, int | float) else value),
]


class NumericsSettings(Section):
    """Roundings of the forward pass.

    Attributes:
        compute: dtype that activations are stored in between operators.
        activation_quantisation: round inputs of FP8 and FP4 products as the real kernels do.
        cache_quantisation: keep caches in their quantised forms.
    """

    compute: ComputeDtype = "bfloat16"
    activation_quantisation: bool = True
    cache_quantisation: bool = True

    def numerics(self) -> Numerics:
        """The same as the value that components take."""
        return Numerics(
            compute=self.compute,
            activation_quantisation=self.activation_quantisation,
            cache_quantisation=self.cache_quantisation,
        )


class ModelSettings(Section):
    """The checkpoint.

    Attributes:
        path: folder of the checkpoint; None takes the one that an installed distribution ships.
        numerics: roundings of the forward pass.
    """

    path: str | None = Field(default=None, min_length=1)
    numerics: NumericsSettings = NumericsSettings()


class EngineSettings(Section):
    """Sizes and limits of the engine.

    Attributes:
        max_model_len: longest prompt plus output in tokens; None takes the checkpoint's.
        max_num_seqs: sequences that run at once.
        max_queued: answers in work at once in ``AsyncLLM``, running and waiting ones together;
            whoever asks for more waits, or is refused.
        max_num_batched_tokens: tokens of one step, prompts and decodes together.
        num_blocks: blocks of the cache; None derives it from ``kv_cache_bytes`` or from the limits.
        kv_cache_bytes: memory for blocks; None derives it.
        state_slots_ratio: state slots per running sequence, 1 to 16.
        max_backtracking_tokens: how far a rejected draft may set a sequence back.
        mixed_steps: let chunks of prompts and decoded tokens share a step; otherwise steps of both
            kinds take turns.
        asynchronous: decide and launch a step before the results of the last one are read. Without
            it, for debugging, the same thread does one after the other; the tokens are the same.
        graphs: record decode steps and repeat them, where device or components can: a GPU when
            the engine starts, as one launch each, a CPU as they come; the tokens are the same.
        priority_boost_s: seconds by which one step of a request's priority moves it forward.
        prefix_cache: let requests reuse what others with the same beginning have computed.
        snapshot_slots: state slots for copies of states, with which prefixes are resumed; None
            takes four for each running sequence, as far as memory allows.
        recovery: what happens if the entries of a prefix are cached and no copy of its state is:
            ``exact`` computes as much of it again as the same bits take, ``bounded`` one window of
            tokens, which is an approximation.
        replay: run the decoder half on the last tokens of a prompt only (an approximation): ``off``
            runs it on all, ``mask`` hides the others' window keys, ``compact`` leaves them out.
        replay_keep_tokens: the tokens that it then runs on; at least window and backtracking.
        seed: requests that bring no seed draw theirs from it, in the order of their arrival; None:
            from the system.
        decode_token_blacklist: ids that are never sampled; a text such as ``0..3,7`` is accepted.
        kv_store: use of a store of blocks.
    """

    max_model_len: int | None = Field(default=None, ge=1)
    max_num_seqs: int = Field(default=16, ge=1)
    max_queued: int = Field(default=1024, ge=1)
    max_num_batched_tokens: int = Field(default=512, ge=1)
    num_blocks: int | None = Field(default=None, ge=1)
    kv_cache_bytes: int | None = Field(default=None, ge=1)
    state_slots_ratio: float = Field(default=1.2, ge=1, le=16, allow_inf_nan=False)
    max_backtracking_tokens: int = Field(default=6, ge=1)
    mixed_steps: bool = True
    asynchronous: bool = True
    graphs: bool = True
    priority_boost_s: float = Field(default=10.0, ge=0, le=86_400, allow_inf_nan=False)
    prefix_cache: bool = True
    snapshot_slots: int | None = Field(default=None, ge=0)
    recovery: Literal["exact", "bounded"] = "exact"
    replay: Literal["off", "mask", "compact"] = "off"
    replay_keep_tokens: int = Field(default=140, ge=1)
    seed: int | None = Field(default=None, ge=0, lt=1 << 64)
    decode_token_blacklist: TokenIds = ()
    kv_store: KvStoreSettings = KvStoreSettings()


class DrafterSettings(Section):
    """The drafter of the checkpoint, as far as it can be asked on its own.

    Attributes:
        confidence_temperatures: divisor of the confidence logits: one for all draft positions, or
            one for each; None takes the checkpoint's.
    """

    confidence_temperatures: Temperatures | None = None


class SpeculationSettings(Section):
    """How drafts are verified; ``components.drafter.use`` says who gives them.

    Attributes:
        max_drafts: drafts of a sequence that a step verifies, at most; 0: none, whoever gives them.
        rule: how drafts are accepted: ``match`` gives the tokens of decoding without drafts, bit
            for bit; ``ratio`` accepts more of them and keeps the law of the tokens, not the tokens.
        budget: ``fixed`` verifies all drafts; ``planned`` as many as pay under the present load,
            if the drafter says how likely they are accepted.
    """

    max_drafts: int = Field(default=5, ge=0, le=64)
    rule: AcceptanceRule = "match"
    budget: Literal["fixed", "planned"] = "fixed"


class GrammarSettings(Section):
    """Compiling of grammars, which runs in processes of its own.

    Attributes:
        workers: grammars compiled at once; all but one of them may be slow ones.
        timeout_s: for one grammar, waiting for its turn included; the request fails then.
        max_waiting: grammars that may wait for their turn; a request with one more fails.
        memory_bytes: for one grammar; the request fails then.
        cache_bytes: compiled grammars that are kept for other requests, in the memory that they
            hold; each request also holds its own while it runs.
    """

    workers: int = Field(default=2, ge=1, le=64)
    timeout_s: float = Field(default=20.0, gt=0, le=LONGEST_WAIT_S)
    max_waiting: int = Field(default=1024, ge=1)
    memory_bytes: int = Field(default=2 << 30, ge=1 << 20)
    cache_bytes: int = Field(default=1 << 30, ge=0)


class PluginsSettings(Section):
    """Which plugins are loaded, and how long they may take.

    Attributes:
        require: distributions that must be loaded, with optional version bounds
            (``deepinfer-nvidia>=0.3``).
        block: plugins that are not loaded, by entry-point or distribution name.
        autoload: load whatever is installed; otherwise only what ``require`` names, and the core.
        load_timeout_s: for the import and the description of one plugin.
        probe_timeout_s: for one probe, and for the facts of the device.
    """

    require: Names = ()
    block: Names = ()
    autoload: bool = True
    load_timeout_s: float = Field(default=20.0, gt=0, le=LONGEST_WAIT_S)
    probe_timeout_s: float = Field(default=20.0, gt=0, le=LONGEST_WAIT_S)


class KernelsSettings(Section):
    """Kernels that are compiled on this machine.

    Attributes:
        cache_dir: folder that keeps them; None takes ``deepinfer/kernels`` in the user's cache
            folder.
        compile_jobs: processes that compile at once before an engine starts; None: one for each
            hardware thread, as far as there are 2 GiB of free memory for each.
    """

    cache_dir: str | None = Field(default=None, min_length=1)
    compile_jobs: int | None = Field(default=None, ge=1, le=_MOST_THREADS)


class TelemetrySettings(Section):
    """Logs, progress and statistics lines, all on standard error.

    Attributes:
        format: ``auto`` is ``console`` on a terminal and ``json`` elsewhere.
        level: least severe event that is shown; where it is not set, ``serve`` also logs calls.
        progress: show bars on a terminal; ``kernels compile`` and ``serve`` write lines elsewhere.
        statistics_interval_s: least time between two lines about what the engine does, at level
            ``info``; 0: none.
    """

    format: Literal["auto", "console", "json"] = "auto"
    level: Literal["debug", "info", "warning", "error", "off"] = "warning"
    progress: bool = True
    statistics_interval_s: float = Field(default=0.0, ge=0, le=LONGEST_WAIT_S)


class Settings(Section):
    """Everything a user can set.

    Attributes:
        device: device to run on; there is no best effort, what is named is used or refused.
        model: the checkpoint.
        engine: sizes and limits.
        drafter: the checkpoint's drafter.
        speculation: verification of drafts.
        grammar: compiling of grammars.
        plugins: loading of plugins.
        components: choice of components.
        kernels: compiled kernels.
        strict: properties that every component must have.
        telemetry: logs and progress.
        server: the HTTP server.
        threads: threads of one operator on the CPU. The products of a small model are so short
            that more threads mostly wait for each other.
    """

    device: str = Field(default="cpu", pattern=r"^[a-z][a-z0-9_]*$")
    model: ModelSettings = ModelSettings()
    engine: EngineSettings = EngineSettings()
    drafter: DrafterSettings = DrafterSettings()
    speculation: SpeculationSettings = SpeculationSettings()
    grammar: GrammarSettings = GrammarSettings()
    plugins: PluginsSettings = PluginsSettings()
    components: ComponentsSettings = ComponentsSettings()
    kernels: KernelsSettings = KernelsSettings()
    strict: Annotated[
        tuple[Literal["batch_invariant", "deterministic", "graph_safe"], ...],
        BeforeValidator(one_or_many),
    ] = ()
    telemetry: TelemetrySettings = TelemetrySettings()
    server: ServerSettings = ServerSettings()
    threads: int = Field(default=1, ge=1, le=_MOST_THREADS)

    @property
    def drafts(self) -> int:
        """Drafts of a sequence that a step verifies, at most; 0 without a drafter."""
        return 0 if self.components.drafter.use == "none" else self.speculation.max_drafts


assert set(PROPERTIES) == {"batch_invariant", "deterministic", "graph_safe"}
