"""Under which operating conditions are likelihoods measured?

Conditions of equal arithmetic differ only in the way a text takes through the engine, so the
promise of batch invariance says that their bits are equal on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["CONDITIONS", "Condition", "Rounding"]

Rounding = Literal["plain", "quantised"]
"""``plain``: fp32 throughout. ``quantised``: somewhere a value is rounded to few bits, so that the
last bit of a sum can move it by a whole step."""


_Numerics = Literal["production", "semantic"]
_Path = Literal["prefill", "decode"]

_TABLE: tuple[tuple[_Numerics, bool, _Path, int | None], ...] = (
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One way to compute the likelihood of a text.

    Attributes:
        numerics: production (bf16, rounded activations) or semantic (fp32, no rounding).
        cache_quantisation: caches in their quantised forms.
        path: ``prefill`` scores the text as a prompt; ``decode`` forces it token by token behind
            its first one, all texts in one batch.
        chunk_tokens: rows of one step of a prefill, one text after the other; None takes whole
            texts, several to a step.
    """

    numerics: _Numerics
    cache_quantisation: bool
    path: _Path
    chunk_tokens: int | None = None

    @property
    def arithmetic(self) -> str:
        """Equal for conditions that must agree in every bit."""
        return f"{self.numerics}/cache-{'quantised' if self.cache_quantisation else 'plain'}"

    @property
    def rounding(self) -> Rounding:
        """Which tolerance holds between unlike machines."""
        is_plain = self.numerics == "semantic" and not self.cache_quantisation
        return "plain" if is_plain else "quantised"

    def name(self, device: str) -> str:
        """Key in the baseline file, e.g. ``cpu/production/cache-quantised/prefill/7``."""
        chunk = "whole" if self.chunk_tokens is None else str(self.chunk_tokens)
        way = self.path if self.path == "decode" else f"{self.path}/{chunk}"
        return f"{device}/{self.arithmetic}/{way}"

    def overrides(self, lengths: list[int]) -> list[str]:
        """Settings of the engine, in the form of ``--set``.

        Args:
            lengths: tokens of each text.
        """
        is_production = self.numerics == "production"
        rows = max(sum(lengths), 1) if self.chunk_tokens is None else self.chunk_tokens
        values = {
            "model.numerics.compute": "bfloat16" if is_production else "float32",
            "model.numerics.activation_quantisation": str(is_production).lower(),
            "model.numerics.cache_quantisation": str(self.cache_quantisation).lower(),
            "engine.max_num_batched_tokens": rows,
            "engine.max_num_seqs": len(lengths) if self.chunk_tokens is None else 1,
            # Scoring a prompt draws one token behind it.
            "engine.max_model_len": max(lengths) + 1,
            "strict": "batch_invariant,deterministic",
        }
        return [f"{key}={value}" for key, value in values.items()]


CONDITIONS: tuple[Condition, ...] = tuple(
    Condition(numerics=numerics, cache_quantisation=cache, path=path, chunk_tokens=chunk)
    for numerics, cache, path, chunk in _TABLE
)
"""What the gate measures. A chunk of 7 rows is the shortest that does not take the decode path; one
of 128 is a window."""
