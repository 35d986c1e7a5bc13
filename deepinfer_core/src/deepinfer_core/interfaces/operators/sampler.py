"""Which kernels of a sampler may be asked for? ``interfaces.sampler`` says what they compute.

A row is worked on in segments of ``SEGMENT_TOKENS`` tokens, whatever the vocabulary and the number
of rows, so that sums have one order. A group is 128 tokens of a segment: 16 neighbours of each of
its 1024; a chunk is 128 neighbours. Both are numbered from the start of the row.

Kernels of the draw, in their order: ``scan_logits`` (peaks and sums of segments), ``truncate_draw``
(draws from rows whose candidates tell where truncation ends, and leaves the others pending),
``cut_rows``, ``weigh_chunks`` and ``draw_chunks`` (for pending rows). Twins are in
``testing.kernel_cases.sampler_twins``; together they are ``reference.sampler``.

Shapes: R rows, V vocabulary, W = ceil(V / 32), S segments, G groups or chunks, A alternatives.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "CANDIDATES",
    "CHUNK_TOKENS",
    "OPEN_TOKENS",
    "SEGMENT_TOKENS",
    "SHORT_TOKENS",
    "ApplyRulesSpec",
    "MaskLogitsSpec",
    "SampleSpec",
    "TopLogprobsSpec",
]

SEGMENT_TOKENS = 8192
CHUNK_TOKENS = 128

CANDIDATES = 512
"""Tokens of a row that can be looked at one by one. More leave it pending."""

SHORT_TOKENS = 256
"""The largest top-k that needs nothing but candidates."""

OPEN_TOKENS = 128
"""Candidates to look for where top-k does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSpec:
    """All kernels that read logits.

    Attributes:
        vocabulary: V.
        dtype: of the logits that are drawn from: float32 or float64.
        raw_dtype: of the model's own logits.
    """

    vocabulary: int
    dtype: str = "float32"
    raw_dtype: str = "float32"

    @property
    def segments(self) -> int:
        """S."""
        return -(-self.vocabulary // SEGMENT_TOKENS)

    @property
    def groups(self) -> int:
        """G."""
        return self.segments * (SEGMENT_TOKENS // CHUNK_TOKENS)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskLogitsSpec:
    """Arguments raw_logits_RV, allowed_RW, logits_RV.

    Attributes:
        vocabulary: V.
        raw_dtype: of the model's logits.
        dtype: of the masked ones, the same or float64.
    """

    vocabulary: int
    raw_dtype: str
    dtype: str

    @property
    def words(self) -> int:
        """W."""
        return -(-self.vocabulary // 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRulesSpec:
    """Arguments as in ``LogitsRules``, and logits_RV, fp64, which are changed in place.

    Attributes:
        vocabulary: V.
    """

    vocabulary: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopLogprobsSpec(SampleSpec):
    """Alternatives of the raw law.

    Attributes:
        alternatives: A, at least 1.
    """

    alternatives: int
