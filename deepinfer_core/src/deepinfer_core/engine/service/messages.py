"""What do an engine's process and the one in front of it say to each other?

Requests have numbers that the front gives, never twice. After each step the engine says everything
that happened in one ``StepDone``; a request that is in ``ended`` or ``failed`` is not named again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from deepinfer_core import __version__
from deepinfer_core.channel.language import Language
from deepinfer_core.engine.outputs import FinishReason
from deepinfer_core.interfaces.async_engine import AbortedBy, EngineFacts
from deepinfer_core.telemetry.progress import PhaseAdvanced, PhaseFinished, PhaseStarted

__all__ = [
    "FRONT_LANGUAGE",
    "Abort",
    "Ended",
    "Failed",
    "Fault",
    "Figure",
    "Figures",
    "FiguresAsked",
    "FromEngine",
    "Grown",
    "Likelihood",
    "LoadFailed",
    "Loading",
    "Ready",
    "Start",
    "StartedRow",
    "StepDone",
    "Stop",
    "Submit",
    "ToEngine",
]


class Start(msgspec.Struct, frozen=True, kw_only=True, tag=True, array_like=True):
    """Load an engine; the first thing that is said.

    Attributes:
        settings: of ``LoadedSettings.to_json``.
        path: where modules are found.
    """

    settings: str
    path: list[str]


class Submit(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Answer a request.

    Attributes:
        number: of the request.
        prompt: token ids of 4 bytes each, lowest byte first.
        params: fields of ``SamplingParams`` that are not the default.
        cache_salt, priority, timeout_s, retention: see ``RequestOptions``.
        name: of the request, as logs of the front have it.
    """

    number: int
    prompt: bytes
    params: dict[str, Any]
    cache_salt: str
    priority: int
    timeout_s: float | None
    name: str = ""
    retention: str = "agent"


class Abort(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """End a request, if it has not ended; its end says by whom."""

    number: int
    by: AbortedBy


class FiguresAsked(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Say what is counted; the answer bears the same number."""

    number: int


class Stop(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """End everything, and the process; what runs is told the reason."""

    reason: str


class Fault(msgspec.Struct, frozen=True, array_like=True):
    """An error of ``deepinfer_core.errors``.

    Attributes:
        code: of its class.
        message, hint: of the error.
    """

    code: str
    message: str
    hint: str


class Loading(msgspec.Struct, frozen=True, kw_only=True, tag=True, array_like=True):
    """One event of loading; one of the three is there."""

    started: PhaseStarted | None = None
    advanced: PhaseAdvanced | None = None
    finished: PhaseFinished | None = None


class Ready(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The engine takes requests."""

    facts: EngineFacts


class LoadFailed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """There will be no engine; the process ends."""

    fault: Fault


class Likelihood(msgspec.Struct, frozen=True, array_like=True):
    """The same as ``TokenLogprob``."""

    token_id: int
    logprob: float
    processed_logprob: float
    top: tuple[tuple[int, float], ...]


class StartedRow(msgspec.Struct, frozen=True, array_like=True):
    """The first row of a request is scheduled."""

    number: int
    prompt_tokens: int
    cached_tokens: int


class Grown(msgspec.Struct, frozen=True, array_like=True):
    """A request got tokens."""

    number: int
    token_ids: tuple[int, ...]
    text: str
    logprobs: tuple[Likelihood, ...] = ()


class Ended(msgspec.Struct, frozen=True, array_like=True):
    """A request ended well, or as it was asked to; fields as in ``Finished``."""

    number: int
    reason: FinishReason
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    drafted_tokens: int
    accepted_tokens: int
    queue_s: float
    prompt_logprobs: tuple[Likelihood | None, ...] | None
    aborted_by: AbortedBy | None = None


class Failed(msgspec.Struct, frozen=True, array_like=True):
    """A request was refused, or failed."""

    number: int
    fault: Fault


class StepDone(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """What happened since the last one, each list in the order in which it is to be read."""

    started: list[StartedRow]
    grown: list[Grown]
    ended: list[Ended]
    failed: list[Failed]


class Figure(msgspec.Struct, frozen=True, array_like=True):
    """One series of the board; fields as in ``Series``, with the metric's name."""

    name: str
    labels: tuple[str, ...]
    value: float
    counts: tuple[int, ...]


class Figures(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """All series, as of one moment."""

    number: int
    figures: list[Figure]


ToEngine = Start | Submit | Abort | FiguresAsked | Stop
FromEngine = Loading | Ready | LoadFailed | StepDone | Figures

FRONT_LANGUAGE: Language[ToEngine, FromEngine] = Language(
    name="engine", revision=5, version=__version__, says=ToEngine, hears=FromEngine
)
"""What the process in front says and hears; the engine's is ``FRONT_LANGUAGE.reversed()``."""
