"""Is a measurement what the baseline says?

Three questions, in this order: was the same thing measured (checkpoint, tokenizer, components,
conditions, samples); do conditions of equal arithmetic agree in every bit, which holds on every
machine; and are the numbers those of the baseline: in every bit on the platform that the baseline
was measured on, within the tolerances of its file elsewhere.

And a fourth, whose answer no refresh changes: are the numbers of every component about those of the
specification, ``core.reference`` on a CPU? They are added up in other orders, so they may be as far
apart as those of two platforms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import accumulate

from deepinfer_core.engine.gate.baseline import (
    Baseline,
    ConditionScores,
    Measurement,
    SampleScore,
    Tolerance,
)

__all__ = ["Difference", "compare", "disagreements", "platform_differences", "strays"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is not as it was.

    Attributes:
        condition: its name; empty if it concerns all.
        sample: id of the first sample that differs; empty if it is no matter of samples.
        position: place in the text of the first token whose likelihood differs; between unlike
            platforms, the first at which the sum so far left the tolerance. None without one.
        what: a sentence.
    """

    condition: str = ""
    sample: str = ""
    position: int | None = None
    what: str


def platform_differences(baseline: Baseline, measured: Measurement) -> list[str]:
    """What keeps bits from being comparable, each ``name: here, baseline``; empty: nothing."""
    here, there = asdict(measured.platform), asdict(baseline.measurement.platform)
    return [
        f"{name}: {_text(here[name])} here, {_text(there[name])} in the baseline"
        for name in here
        if here[name] != there[name]
    ]


def compare(baseline: Baseline, measured: Measurement) -> list[Difference]:
    """All differences; of each condition the first one."""
    found = list(disagreements(measured))
    is_exact = not platform_differences(baseline, measured)
    for name, scores in measured.conditions.items():
        wanted = baseline.measurement.conditions.get(name)
        if wanted is None:
            found.append(Difference(condition=name, what="the baseline has no such condition"))
            continue
        tolerance = None if is_exact else baseline.tolerances[scores.rounding]
        found += _condition(name, wanted, scores, tolerance)
    return found


def disagreements(measured: Measurement) -> Iterator[Difference]:
    """Conditions whose bits are not those of an earlier one of equal arithmetic.

    Positions of a text that both have scored are compared; one may have scored more of them, or a
    longer piece of the text, which changes nothing in front of its end.
    """
    known: dict[tuple[str, str, int], tuple[float, str]] = {}
    for name, scores in measured.conditions.items():
        has_differed = False
        for sample in scores.samples:
            for position, nats in enumerate(sample.nats, sample.first):
                place = (scores.arithmetic, sample.id, position)
                wanted, other = known.setdefault(place, (nats, name))
                if nats == wanted or other == name or has_differed:
                    continue
                has_differed = True
                yield Difference(
                    condition=name,
                    sample=sample.id,
                    position=position,
                    what=f"{nats!r} nats, but {wanted!r} under {other}, whose arithmetic is the"
                    " same",
                )


def strays(
    reference: Baseline, measured: Measurement, names: Mapping[str, str]
) -> Iterator[Difference]:
    """Conditions whose sums are too far from those of the specification.

    Args:
        reference: of the device that the specification was measured on.
        measured: what is held to it, of the same texts and checkpoint.
        names: of the condition there that each is held to.
    """
    for name, scores in measured.conditions.items():
        other = names[name]
        wanted = reference.measurement.conditions.get(other)
        if wanted is None:
            yield Difference(condition=name, what=f"there is no {other} to hold it to")
        elif what := _other_model(wanted, scores):
            yield Difference(condition=name, what=f"against {other}: {what}")
        elif other != name:
            tolerance = reference.tolerances[scores.rounding]
            for one in _numbers(name, wanted, scores, tolerance):
                yield replace(one, what=f"against {other}: {one.what}")


def _text(value: object) -> str:
    return " ".join(value) if isinstance(value, tuple) else str(value)


def _condition(
    name: str, wanted: ConditionScores, found: ConditionScores, tolerance: Tolerance | None
) -> Iterator[Difference]:
    if other := _other_model(wanted, found):
        yield Difference(condition=name, what=other)
        return
    for slot in sorted({*wanted.components, *found.components}):
        old, new = (one.components.get(slot, "nothing") for one in (wanted, found))
        if old != new:
            what = f"slot {slot}: {new} runs here, the baseline has {old}"
            yield Difference(condition=name, what=what)
    yield from _numbers(name, wanted, found, tolerance)


def _other_model(wanted: ConditionScores, found: ConditionScores) -> str:
    for part in ("checkpoint", "tokenizer"):
        old, new = getattr(wanted, part), getattr(found, part)
        if old != new:
            return f"another {part}: {new[:16]} here, {old[:16]} in the baseline"
    return ""


def _numbers(
    name: str, wanted: ConditionScores, found: ConditionScores, tolerance: Tolerance | None
) -> Iterator[Difference]:
    old_ids = [(one.id, one.first, len(one.nats)) for one in wanted.samples]
    if old_ids != [(one.id, one.first, len(one.nats)) for one in found.samples]:
        yield Difference(condition=name, what="other samples, or other numbers of tokens")
        return
    for old_sample, new_sample in zip(wanted.samples, found.samples, strict=True):
        difference = _sample(old_sample, new_sample, tolerance)
        if difference is not None:
            place, what = difference
            position = new_sample.first + place
            yield Difference(condition=name, sample=new_sample.id, position=position, what=what)
            return
    if tolerance is not None:
        allowed = tolerance.total / math.sqrt(sum(len(one.nats) for one in wanted.samples))
        if _is_apart(wanted.nll_sum, found.nll_sum, allowed):
            what = _change(wanted.nll_sum, found.nll_sum, allowed)
            yield Difference(condition=name, what=f"all samples together: {what}")


def _sample(
    old: SampleScore, new: SampleScore, tolerance: Tolerance | None
) -> tuple[int, str] | None:
    """Index into ``nats`` and what differs there, or None."""
    if tolerance is None:
        if old.nats == new.nats:
            return None
        place = _first_unequal(old, new)
        sums = _change(old.nll_sum, new.nll_sum)
        return place, f"{new.nats[place]!r} nats, was {old.nats[place]!r}; {sums}"
    allowed = tolerance.sample / math.sqrt(len(old.nats))
    if not _is_apart(old.nll_sum, new.nll_sum, allowed):
        return None
    most = allowed * abs(old.nll_sum)
    gaps = accumulate(b - a for a, b in zip(old.nats, new.nats, strict=True))
    outside = (place for place, gap in enumerate(gaps) if not abs(gap) <= most)
    place = next(outside, len(old.nats) - 1)
    return place, _change(old.nll_sum, new.nll_sum, allowed)


def _first_unequal(one: SampleScore, two: SampleScore) -> int:
    pairs = enumerate(zip(one.nats, two.nats, strict=True))
    return next(place for place, (a, b) in pairs if a != b)


def _is_apart(old: float, new: float, tolerance: float) -> bool:
    # Written so that NaN is apart from everything.
    return not abs(new - old) <= tolerance * abs(old)


def _change(old: float, new: float, tolerance: float | None = None) -> str:
    relative = (new - old) / old if old else float("nan")
    allowed = "" if tolerance is None else f", allowed {tolerance:g}"
    return f"sum {new.hex()}, was {old.hex()} (relative change {relative:+.3g}{allowed})"
