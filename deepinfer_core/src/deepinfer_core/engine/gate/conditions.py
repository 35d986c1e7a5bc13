"""Under which operating conditions are likelihoods measured?

Conditions of equal arithmetic differ only in the way a text takes through the engine, so the
promise of batch invariance says that their bits are equal on every machine, wherever two of them
score the same position of the same text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from deepinfer_core.engine.gate.component_sets import Numerics, component_sets

__all__ = ["LONG_PROMPT_TOKENS", "REFERENCE_DEVICE", "Condition", "Rounding", "conditions_of"]

Rounding = Literal["plain", "quantised"]
"""``plain``: fp32 throughout. ``quantised``: somewhere a value is rounded to few bits, so that the
last bit of a sum can move it by a whole step."""

LONG_PROMPT_TOKENS = 257
"""Prompt within a long text: two whole blocks and the row to draw from. With one block, bounded
recovery would reach the first token, and be exact."""

_SHARED_STEP_ROWS = 64
"""Fewer than a prompt: prompts end one after the other, so that chunks meet decodes."""

_KEPT_TOKENS = 140

REFERENCE_DEVICE = "cpu"
"""Where the specification itself is measured under every condition."""

_REFERENCE = "core.reference"
_Path = Literal["prefill", "decode"]
_Reuse = Literal["none", "snapshot", "recompute", "bounded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One way to compute the likelihood of a text.

    Attributes:
        numerics: production (bf16, rounded activations) or semantic (fp32, no rounding).
        cache_quantisation: caches in their quantised forms.
        path: ``prefill`` scores the text as a prompt; ``decode`` forces it token by token behind
            its beginning, all texts in one batch.
        chunk_tokens: rows of one step; a prefill takes one text after the other then. None takes
            whole texts, several to a step.
        prompt_tokens: length of the beginning, which is not scored, on the path ``decode``.
        is_long: on the long texts of the selection.
        is_mixed: chunks of prompts and decodes share steps.
        is_asynchronous: a step is launched before the results of the last one are read.
        reuse: where the state behind the prompt comes from. ``none`` computes it. The others
            measure the second time that an engine meets the prompt: ``snapshot`` restores it,
            ``recompute`` has no snapshot and feeds what the same bits take, ``bounded`` one window.
        replay: what the decoder half does with the prompt; ``off`` runs on all of it.
        is_recorded: decode steps are repeated from recordings, where the device has them.
        components: name of the set that it runs on.
    """

    numerics: Numerics
    cache_quantisation: bool
    path: _Path
    chunk_tokens: int | None = None
    prompt_tokens: int = 1
    is_long: bool = False
    is_mixed: bool = True
    is_asynchronous: bool = True
    reuse: _Reuse = "none"
    replay: Literal["off", "mask", "compact"] = "off"
    is_recorded: bool = True
    components: str = _REFERENCE

    @property
    def arithmetic(self) -> str:
        """Equal for conditions that must agree in every bit."""
        base = f"{self.numerics}/cache-{'quantised' if self.cache_quantisation else 'plain'}"
        if self.replay != "off":
            base += f"/replay-{_KEPT_TOKENS}"
        if self.reuse == "bounded":
            base += "/bounded"
        return self._set_in_front(base)

    @property
    def rounding(self) -> Rounding:
        """Which tolerance holds between unlike machines."""
        is_plain = self.numerics == "semantic" and not self.cache_quantisation
        return "plain" if is_plain else "quantised"

    def name(self, device: str) -> str:
        """Key in the baseline file, e.g. ``cpu/production/cache-quantised/prefill/7``."""
        parts = [
            device,
            self.numerics,
            f"cache-{'quantised' if self.cache_quantisation else 'plain'}",
            self.path,
        ]
        if self.prompt_tokens > 1:
            parts.append(f"behind-{self.prompt_tokens}")
        if self.chunk_tokens is not None:
            parts.append(str(self.chunk_tokens))
        elif self.path == "prefill":
            parts.append("whole")
        parts += [] if self.reuse == "none" else [self.reuse]
        parts += [] if self.replay == "off" else [self.replay]
        parts += [] if self.is_mixed else ["turns"]
        parts += [] if self.is_asynchronous else ["synchronous"]
        parts += [] if self.is_recorded else ["launched"]
        return "/".join([parts[0], self._set_in_front("/".join(parts[1:]))])

    @property
    def reference_name(self) -> str:
        """Name of the condition that says what these numbers should be about."""
        return replace(self, components=_REFERENCE, is_recorded=True).name(REFERENCE_DEVICE)

    def overrides(self, lengths: list[int]) -> list[str]:
        """Settings of the engine, in the form of ``--set``.

        Args:
            lengths: tokens of each text.
        """
        is_production = self.numerics == "production"
        is_serial = self.path == "prefill" and self.chunk_tokens is not None
        values = {
            "model.numerics.compute": "bfloat16" if is_production else "float32",
            "model.numerics.activation_quantisation": is_production,
            "model.numerics.cache_quantisation": self.cache_quantisation,
            "engine.max_num_batched_tokens": self.chunk_tokens or max(sum(lengths), 1),
            "engine.max_num_seqs": 1 if is_serial else len(lengths),
            # Scoring a prompt draws one token behind it.
            "engine.max_model_len": max(lengths) + 1,
            "engine.mixed_steps": self.is_mixed,
            "engine.asynchronous": self.is_asynchronous,
            "engine.graphs": self.is_recorded,
            "engine.prefix_cache": self.reuse != "none",
            "engine.snapshot_slots": len(lengths) if self.reuse == "snapshot" else 0,
            "engine.recovery": "bounded" if self.reuse == "bounded" else "exact",
            "engine.replay": self.replay,
            "engine.replay_keep_tokens": _KEPT_TOKENS,
            "strict": "batch_invariant,deterministic",
        }
        return [f"{key}={_text(value)}" for key, value in values.items()]

    def _set_in_front(self, name: str) -> str:
        return name if self.components == _REFERENCE else f"{self.components}/{name}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _paths() -> tuple[Condition, ...]:
    """Both paths through the engine, whole and in chunks."""
    table: tuple[tuple[Numerics, bool, _Path, int | None], ...] = (
        ("production", True, "prefill", None),
        ("production", True, "prefill", 128),
        ("production", True, "prefill", 7),
        ("production", True, "decode", None),
        ("production", False, "prefill", None),
        ("semantic", False, "prefill", None),
        ("semantic", False, "prefill", 128),
        ("semantic", False, "decode", None),
        ("semantic", True, "prefill", None),
    )
    return tuple(
        Condition(numerics=numerics, cache_quantisation=cache, path=path, chunk_tokens=chunk)
        for numerics, cache, path, chunk in table
    )


def _steppings() -> tuple[Condition, ...]:
    """Orders of work: what shares a step, and when results are read."""
    return tuple(
        Condition(
            numerics="production",
            cache_quantisation=True,
            path="decode",
            chunk_tokens=_SHARED_STEP_ROWS,
            prompt_tokens=LONG_PROMPT_TOKENS,
            is_long=True,
            is_mixed=is_mixed,
            is_asynchronous=is_asynchronous,
        )
        for is_mixed, is_asynchronous in ((True, True), (False, True), (True, False))
    )


def _prompts(
    numerics: Numerics, reuses: tuple[_Reuse, ...], *, with_mask: bool
) -> tuple[Condition, ...]:
    """Where the state behind a prompt comes from, and what the decoder half saw of it."""

    def behind(
        reuse: _Reuse = "none", replay: Literal["off", "mask", "compact"] = "off"
    ) -> Condition:
        return Condition(
            numerics=numerics,
            cache_quantisation=numerics == "production",
            path="decode",
            prompt_tokens=LONG_PROMPT_TOKENS,
            is_long=True,
            reuse=reuse,
            replay=replay,
        )

    masked = (behind(replay="mask"),) if with_mask else ()
    return (*map(behind, reuses), *masked, behind(replay="compact"))


_ALL: tuple[Condition, ...] = (
    *_paths(),
    *_prompts("production", ("none", "snapshot", "recompute", "bounded"), with_mask=True),
    *_steppings(),
    *_prompts("semantic", ("bounded",), with_mask=False),
)

_LAUNCHED = Condition(
    numerics="production", cache_quantisation=True, path="decode", is_recorded=False
)


def conditions_of(device: str) -> tuple[Condition, ...]:
    """What the gate measures on a device.

    A chunk of 7 rows is the shortest that does not take the decode path; one of 128 is a window.
    """
    return tuple(_conditions(device))


def _conditions(device: str) -> Iterator[Condition]:
    # A CPU has no recordings to do without.
    table = _ALL if device == REFERENCE_DEVICE else (*_ALL, _LAUNCHED)
    for name, chosen in component_sets(device).items():
        for condition in table:
            if condition.numerics in chosen.numerics:
                yield replace(condition, components=name)
