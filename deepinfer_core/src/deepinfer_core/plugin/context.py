"""What may a probe and a factory know?

Plain data only. A probe answers for this machine and this model without touching a device; the
facts were read in a child process before it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from deepinfer_core.interfaces.operators.wanted import Rehearsal

__all__ = [
    "BuildContext",
    "DeviceFacts",
    "DeviceTarget",
    "ModelNeeds",
    "ProbeContext",
    "Verdict",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What a facts program found out about the configured device.

    Attributes:
        device: configured name: ``cpu``, ``nvidia``, ``ascend``.
        model: marketing name, empty if unknown.
        count: devices this process may use; 0 if there is none.
        capability: version of the instruction set, e.g. (9, 0); empty where that means nothing.
        memory_bytes: memory of one device; of a CPU what this process may use; 0 if unknown.
        cores: physical units: cores of a CPU, multiprocessors of a GPU; 0 if unknown.
        threads: hardware threads this process may use; 0 if unknown.
        instruction_sets: names such as ``avx512_bf16``, sorted.
        extra: anything else a vendor's own probes want to read.
        problem: why the facts are missing; empty if they are not.
        fix: what the user can do about the problem; may be empty.
    """

    device: str
    model: str = ""
    count: int = 0
    capability: tuple[int, ...] = ()
    memory_bytes: int = 0
    cores: int = 0
    threads: int = 0
    instruction_sets: tuple[str, ...] = ()
    extra: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    problem: str = ""
    fix: str = ""

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` wrote; unknown keys go to ``extra``.

        Raises:
            TypeError, ValueError: a field has another type.
        """
        known = {item.name for item in fields(cls)}
        values = {name: value for name, value in data.items() if name in known}
        extra = dict(values.pop("extra", {}))
        extra.update((name, value) for name, value in data.items() if name not in known)
        for name in ("count", "memory_bytes", "cores", "threads"):
            values[name] = int(values.get(name, 0))
        values["capability"] = tuple(int(part) for part in values.get("capability", ()))
        values["instruction_sets"] = tuple(sorted(map(str, values.get("instruction_sets", ()))))
        return cls(extra=extra, **values)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTarget:
    """A device that is described by name, because this machine need not have it.

    Attributes:
        arch: as the vendor's compiler calls it, e.g. ``sm_90a``.
        cores: physical units; 0 takes what is usual for the architecture.
    """

    arch: str
    cores: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelNeeds:
    """What a model asks of its components. None and empty mean: not known when it was asked.

    Attributes:
        hidden_width: channels of the residual stream.
        head_count: query heads.
        head_width: channels of one head, and of one cached row.
        index_head_count: heads of the indexer.
        index_width: channels of one index key.
        window_tokens: length of the sliding window.
        block_tokens: tokens in one block of the cache.
        vocabulary: number of token ids.
        expert_count: routed experts of a layer.
        max_model_tokens: longest prompt plus output.
        compute: dtype that activations are stored in.
        weight_formats: number formats of weights.
        cache_formats: number formats of cached rows.
        batch_invariant: the configuration is strict about batch invariance.
    """

    hidden_width: int | None = None
    head_count: int | None = None
    head_width: int | None = None
    index_head_count: int | None = None
    index_width: int | None = None
    window_tokens: int | None = None
    block_tokens: int | None = None
    vocabulary: int | None = None
    expert_count: int | None = None
    max_model_tokens: int | None = None
    compute: str = "bfloat16"
    weight_formats: tuple[str, ...] = ()
    cache_formats: tuple[str, ...] = ()
    batch_invariant: bool = False

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what ``dataclasses.asdict`` gave and JSON carried."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
        }
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeContext:
    """Everything a probe may look at.

    Attributes:
        device: facts of the configured device.
        needs: what the model asks for.
        versions: version of each installed distribution by normalised name (``deepinfer-core``);
            the core's own probes are told none.
        cache_dir: folder where components may keep compiled kernels; empty: none is known.
    """

    device: DeviceFacts
    needs: ModelNeeds
    versions: Mapping[str, str]
    cache_dir: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A probe's answer.

    Attributes:
        usable: whether the component can run here, for this model.
        score: rank among usable candidates under ``auto``; larger wins.
        reason: one line; required when not usable.
        fix: what the user can do about it; may be empty.
        mendable: not usable only because this machine lacks what its user can supply, such as a
            compiler; whoever then gets ``core.reference`` from ``auto`` is warned.
    """

    usable: bool
    score: int = 0
    reason: str = ""
    fix: str = ""
    mendable: bool = False

    def __post_init__(self) -> None:
        """Refuse an answer that explains nothing.

        Raises:
            ValueError: not usable and no reason, or a field of another type.
        """
        texts = isinstance(self.reason, str) and isinstance(self.fix, str)
        truths = isinstance(self.usable, bool) and isinstance(self.mendable, bool)
        if not truths or not isinstance(self.score, int) or not texts:
            raise ValueError(f"a verdict is (bool, int, str, str, bool), not {self!r}")
        if not self.usable and not self.reason:
            raise ValueError("a verdict that is not usable needs a reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildContext:
    """What a factory is told besides its options.

    Attributes:
        device: configured name of the device.
        needs: what the model asks for.
        strict: properties that must hold; one declared ``on_request`` holds only if named here.
        cache_dir: folder where components may keep compiled kernels; empty: none is known.
        facts: of the device, as probes saw them; a context that was made by hand has none.
        rehearsal: set where the engine only wants to know which kernels it will call. A component
            that has kernels then runs none and notes them down (``NotedKernels``), learns about the
            device from ``facts`` alone, and gets tensors of torch's ``meta`` device.
        parts: the components that its options chose, built, in the order of the options.
    """

    device: str
    needs: ModelNeeds
    strict: tuple[str, ...] = ()
    cache_dir: str = ""
    facts: DeviceFacts = field(default_factory=lambda: DeviceFacts(device=""))
    rehearsal: Rehearsal | None = None
    parts: tuple[Any, ...] = ()
