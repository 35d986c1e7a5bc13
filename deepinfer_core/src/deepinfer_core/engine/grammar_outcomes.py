"""What does a request learn of its grammar, and how does a compiled one become usable?"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass

from deepinfer_core.engine.grammar_child import Compiled, Refused
from deepinfer_core.engine.grammar_limits import PoolLimits
from deepinfer_core.engine.grammar_memory import FORGET_S
from deepinfer_core.errors import DeepInferError, EngineBusy, EngineError, UnsupportedGrammar
from deepinfer_core.interfaces.grammar import CompiledGrammar, Grammar, GrammarVocabulary
from deepinfer_core.plugin.resolved import describe
from deepinfer_core.telemetry.logs import get_logger

__all__ = ["Failed", "Usable", "give", "late", "made_usable", "no_kind", "no_room", "refused"]

_SMALLER = "make it smaller, or raise grammar"


@dataclass(frozen=True, slots=True)
class Usable:
    """A grammar, and what it holds.

    Attributes:
        compiled: the grammar.
        size_bytes: memory of it, its text included.
    """

    compiled: CompiledGrammar
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Why there is none.

    Attributes:
        error: for the requests.
        kept_s: for how long the grammar is not tried again; 0: the next one may.
    """

    error: DeepInferError
    kept_s: float = 0.0


def give(future: Future[CompiledGrammar], outcome: CompiledGrammar | DeepInferError) -> None:
    """Give somebody what came of a grammar, unless it is wanted no more."""
    with contextlib.suppress(InvalidStateError):
        if isinstance(outcome, DeepInferError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


def made_usable(
    component: Grammar, compiled: Compiled, vocabulary: GrammarVocabulary, limits: PoolLimits
) -> Usable | Failed:
    """Open what was compiled, in this process.

    Args:
        component: what opens it.
        compiled: by a child.
        vocabulary: of the model.
        limits: what it may hold.
    """
    if compiled.size_bytes > limits.memory_bytes:
        what = f"the compiled grammar takes {compiled.size_bytes} bytes, over {limits.memory_bytes}"
        return Failed(UnsupportedGrammar(what, hint=f"{_SMALLER}.memory_bytes"), math.inf)
    try:
        return Usable(component.open(compiled.portable, vocabulary), compiled.size_bytes)
    except DeepInferError as error:
        return Failed(error)
    except Exception as error:  # noqa: BLE001 - components are foreign code
        return Failed(EngineError(f"the grammar component failed: {describe(error)}"))


def refused(outcome: Refused | None) -> Failed:
    """What a child said; None: its process was lost."""
    if outcome is None:
        what = "compiling the grammar ended its process, most likely for lack of memory"
        return Failed(UnsupportedGrammar(what, hint=f"{_SMALLER}.memory_bytes"), FORGET_S)
    if outcome.detail:
        get_logger(__name__).debug("grammar.refused", detail=outcome.detail)
    if not outcome.is_fault:
        get_logger(__name__).error("grammar.component_failed", error=outcome.message)
        return Failed(EngineError(outcome.message, hint=outcome.hint))
    error = UnsupportedGrammar(outcome.message, hint=outcome.hint)
    return Failed(error, FORGET_S if outcome.is_limit else math.inf)


def late(spent_s: float, limit_s: float, *, more_s: float = 0.0) -> Failed:
    """What one is told whose limit passed: the grammar is to blame, or those before it are.

    Args:
        spent_s: time for which it was compiled.
        limit_s: the limit; it passed, or will while the grammar is opened.
        more_s: how long opening takes; 0: it was not compiled.
    """
    what = f"the grammar was not compiled within {limit_s:g} s"
    waited_s = max(0.0, limit_s - spent_s - more_s)
    if waited_s > limit_s / 2:
        return Failed(
            EngineBusy(
                f"{what}: it waited {waited_s:.1f} s of them for its turn behind other grammars",
                hint="ask again later, or raise grammar.workers or grammar.timeout_s",
            )
        )
    how = f"compiling took {min(spent_s, limit_s):.1f} s"
    how += f", and opening would take {more_s:.1f} s" if more_s else " of them and was not done"
    return Failed(UnsupportedGrammar(f"{what}: {how}", hint=f"{_SMALLER}.timeout_s"), FORGET_S)


def no_kind(kind: str, kinds: Iterable[str]) -> UnsupportedGrammar:
    """What one is told who asks for a kind of grammar that the component does not take."""
    return UnsupportedGrammar(
        f"asked for a grammar of kind {kind!r}, found a component without it",
        hint=f"it takes: {', '.join(sorted(kinds))}",
    )


def no_room(limits: PoolLimits) -> Failed:
    """What one is told where too many wait."""
    return Failed(
        EngineBusy(
            f"{limits.max_waiting} grammars wait to be compiled, as many as may",
            hint="ask again later, or raise grammar.max_waiting",
        )
    )
