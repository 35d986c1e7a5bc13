"""Which tunings should serve a spec, by the times that they took?

A choice changes only if that is worth more than the spread of both times. K may be divided
otherwise than it is now, which changes the bits of the spec, if all numbers of rows gain more than
a fiftieth by it on average, and none of them loses more than that unless it stays ahead of the
peer.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from deepinfer_core.bench.kernel_timing import Sample
from deepinfer_core.bench.kernel_tuning import LoadTimes
from deepinfer_core.interfaces.operators.tunings import (
    FastestTuning,
    KernelTunings,
    SpecChoices,
    TunedKernel,
)

__all__ = ["Decision", "decide"]

_HIDDEN_SHARE = 0.02
"""Of a time: what other bits may cost at a number of rows, and count as costing nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What one size gets.

    Attributes:
        times: of all candidates.
        choice: one of them.
        others: the fastest of those with other bits than the choice.
    """

    times: LoadTimes
    choice: TunedKernel
    others: tuple[TunedKernel, ...]

    @property
    def is_change(self) -> bool:
        """Whether a launch would take another one than now."""
        return self.choice != self.times.picked

    @property
    def gain(self) -> float:
        """Share of its time that the size loses; 0 without a change."""
        samples = self.times.samples
        if not self.is_change or self.times.picked not in samples:
            return 0.0
        return 1 - samples[self.choice].seconds / samples[self.times.picked].seconds


def decide(
    tunings: KernelTunings, sizes: Sequence[LoadTimes], *, is_whole: bool
) -> tuple[list[Decision], SpecChoices | None]:
    """Choose for one spec; the choices cover it, or are none.

    Args:
        tunings: of the backend.
        sizes: of the spec, with rising rows.
        is_whole: whether these are all sizes of the spec; else bits do not change.

    Returns:
        What each size gets, if anything was right there; and the choices, None unless all sizes
        have one.
    """
    usual = {tunings.bits(one.picked) for one in sizes}
    assert len(usual) == 1, "what launches take now has the same bits for all rows of a spec"
    kept = _chosen(tunings, sizes, usual.pop())
    if is_whole:
        for bits in dict.fromkeys(tunings.bits(one) for size in sizes for one in size.samples):
            other = _chosen(tunings, sizes, bits)
            if _is_better(sizes, other, kept):
                kept = other
    decisions = [
        Decision(times=size, choice=one, others=_others(tunings, size, one))
        for size, one in zip(sizes, kept, strict=True)
        if one is not None
    ]
    if not is_whole or len(decisions) < len(sizes):
        return decisions, None
    case = sizes[0].load.case
    fastest = [_fastest(decision) for decision in decisions]
    return decisions, SpecChoices(operator=case.operator, spec=case.spec, fastest=fastest)


def _chosen(
    tunings: KernelTunings, sizes: Sequence[LoadTimes], bits: Hashable
) -> list[TunedKernel | None]:
    """Of those with these bits: what is taken now unless another is faster by more than chance."""
    found: list[TunedKernel | None] = []
    for size in sizes:
        alike = {one: sample for one, sample in size.samples.items() if tunings.bits(one) == bits}
        best = min(alike, key=lambda one: alike[one].seconds, default=None)
        now = alike.get(size.picked)
        if best is not None and now is not None and not _is_faster(alike[best], now):
            best = size.picked
        found.append(best)
    return found


def _is_faster(one: Sample, other: Sample) -> bool:
    return other.seconds - one.seconds > max(one.spread_s, other.spread_s)


def _is_better(
    sizes: Sequence[LoadTimes],
    ones: Sequence[TunedKernel | None],
    others: Sequence[TunedKernel | None],
) -> bool:
    """Whether the ones cost nothing that counts anywhere, and gain on average."""
    gain = 0.0
    for size, one, other in zip(sizes, ones, others, strict=True):
        if one is None or other is None:
            return False
        new, old = size.samples[one], size.samples[other]
        is_slower = new.seconds > (1 + _HIDDEN_SHARE) * old.seconds and _is_faster(old, new)
        if is_slower and not new.seconds <= size.peer_s:
            return False
        gain += 1 - new.seconds / old.seconds
    return gain > _HIDDEN_SHARE * len(sizes)


def _others(
    tunings: KernelTunings, size: LoadTimes, choice: TunedKernel
) -> tuple[TunedKernel, ...]:
    best: dict[Hashable, TunedKernel] = {}
    for one in sorted(size.samples, key=lambda one: size.samples[one].seconds):
        best.setdefault(tunings.bits(one), one)
    return tuple(one for bits, one in best.items() if bits != tunings.bits(choice))


def _fastest(decision: Decision) -> FastestTuning:
    load, sample = decision.times.load, decision.times.samples[decision.choice]
    return FastestTuning(
        rows=load.case.rows,
        serves=load.serves,
        choice=decision.choice,
        seconds=sample.seconds,
        spread_s=sample.spread_s,
    )
