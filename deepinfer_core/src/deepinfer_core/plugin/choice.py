"""Which candidate fills a slot?

``auto`` takes the usable candidate with the highest score, then the first by name. A name is an
order. A list is the only fallback. ``none`` leaves an optional slot empty. Pure: equal input, in
any order, gives an equal choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from deepinfer_core.errors import NoUsableComponent
from deepinfer_core.interfaces.kinds import DISTRIBUTIONS, slot_title
from deepinfer_core.plugin.probing import Candidate

__all__ = [
    "REFERENCE",
    "CandidateState",
    "Row",
    "SlotChoice",
    "Unfilled",
    "Wish",
    "choose",
    "slot_problems",
]

CandidateState = Literal[
    "picked", "outranked", "not asked for", "unusable", "contract-mismatch", "probe-failed"
]

REFERENCE = "core.reference"
"""Correct and slow; where an accelerator was asked for, only an explicit wish may pick it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the configuration wants in one slot.

    Attributes:
        kind, slot: the place.
        use: ``auto``, a name, or names in order of preference; ``none`` in an optional slot.
        exact: made for this very slot; otherwise for the kind, so that a component which does not
            fill this slot leaves it to ``auto``.
    """

    kind: str
    slot: str
    use: str | tuple[str, ...] = "auto"
    exact: bool = False

    @property
    def title(self) -> str:
        """Name of the slot in reports."""
        return slot_title(self.kind, self.slot)


@dataclass(frozen=True, slots=True)
class Row:
    """One candidate of one slot, as the report shows it."""

    candidate: Candidate
    state: CandidateState
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfilled:
    """Why a slot has no winner, in words that leave out which slot it is.

    Attributes:
        message: with ``{slots}`` where the names of the slots go, if they are named at all.
        hint: what to do.
    """

    message: str
    hint: str

    def error(self, slots: Sequence[str]) -> NoUsableComponent:
        """One error for all slots that this keeps empty."""
        # Only the first place is ours: reasons further on are foreign text.
        text = self.message.replace("{slots}", ", ".join(slots), 1)
        return NoUsableComponent(text, hint=self.hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotChoice:
    """The outcome for one slot.

    Attributes:
        wish: what was wanted.
        rows: every candidate; the picked one first.
        picked: the winner, or None.
        unfilled: why there is no winner; None if there is one, or none was wanted.
        warning: set if a list fell back to a later name, or ``auto`` to the reference although a
            faster component for this device is only hindered; the latter leaves out which slot.
    """

    wish: Wish
    rows: tuple[Row, ...]
    picked: Candidate | None = None
    unfilled: Unfilled | None = None
    warning: str = ""

    @property
    def problem(self) -> NoUsableComponent | None:
        """The error of this slot alone."""
        return self.unfilled.error([self.wish.title]) if self.unfilled else None


def slot_problems(choices: Sequence[SlotChoice]) -> list[NoUsableComponent]:
    """The errors of all slots; those that are empty for one reason share one."""
    slots: dict[Unfilled, list[str]] = {}
    for choice in choices:
        if choice.unfilled is not None:
            slots.setdefault(choice.unfilled, []).append(choice.wish.title)
    return [unfilled.error(titles) for unfilled, titles in slots.items()]


def choose(wish: Wish, candidates: Sequence[Candidate], device: str) -> SlotChoice:
    """Pick a component for one slot.

    Args:
        wish: what the configuration wants there.
        candidates: all of the slot's kind, those of its other slots included.
        device: the configured device.
    """
    fitting = [item for item in candidates if wish.slot in item.spec.slots]
    fitting.sort(key=lambda item: (-item.score, item.spec.name, item.offer.plugin.key))
    if wish.use == "auto":
        return _automatic(wish, fitting, device)
    if wish.use == "none":
        return SlotChoice(wish=wish, rows=_rows(wish, fitting, None, ("none",)))
    names = (wish.use,) if isinstance(wish.use, str) else wish.use
    for name in names:
        unfilled = _unknown(wish, name, candidates, fitting)
        if unfilled is not None:
            return SlotChoice(wish=wish, rows=_rows(wish, fitting, None, names), unfilled=unfilled)
    names = tuple(name for name in names if any(item.spec.name == name for item in fitting))
    return _ordered(wish, fitting, names) if names else _automatic(wish, fitting, device)


def _automatic(wish: Wish, fitting: Sequence[Candidate], device: str) -> SlotChoice:
    skipped = {
        item.offer.key: reason
        for item in fitting
        if (reason := _not_for_auto(item, device)) is not None
    }
    able = [item for item in fitting if item.usable and item.offer.key not in skipped]
    picked = able[0] if able else None
    rows = []
    for item in fitting:
        state, reason = _state(item)
        if item is picked:
            state, reason = "picked", item.reason
        elif item.usable and item.offer.key in skipped:
            state, reason = "not asked for", skipped[item.offer.key]
        rows.append(Row(item, state, reason))
    if picked is None:
        unfilled = _nothing(wish, fitting, skipped, device)
        return SlotChoice(wish=wish, rows=_sorted(rows), unfilled=unfilled)
    warning = _hindered(fitting, device) if picked.spec.name == REFERENCE else ""
    return SlotChoice(wish=wish, rows=_sorted(rows), picked=picked, warning=warning)


def _hindered(fitting: Sequence[Candidate], device: str) -> str:
    """What to say if the reference runs in place of a component that was made for the device."""
    for item in fitting:
        hindered = item.mendable or item.judgement == "probe-failed"
        if hindered and not item.usable and device in item.spec.devices:
            name = item.spec.name
            return (
                f"{name} is not usable: {item.reason}; {REFERENCE} runs, slower "
                f"(deepinfer plugins --why {name})"
            )
    return ""


def _not_for_auto(item: Candidate, device: str) -> str | None:
    if item.spec.kind == "device" and device not in item.spec.devices:
        return f"the configuration asks for device = {device!r}"
    if item.spec.name == REFERENCE and device != "cpu":
        return '"auto" takes it only with device = "cpu"'
    return None


def _ordered(wish: Wish, fitting: Sequence[Candidate], names: tuple[str, ...]) -> SlotChoice:
    by_order = sorted(
        (item for item in fitting if item.spec.name in names),
        key=lambda item: names.index(item.spec.name),
    )
    picked = next((item for item in by_order if item.usable), None)
    rows = _rows(wish, fitting, picked, names)
    if picked is None:
        reasons = "; ".join(f"{item.spec.name}: {item.reason}" for item in by_order)
        fix = next((item.fix for item in by_order if item.fix), "")
        unfilled = Unfilled(
            message=f"{{slots}} cannot be filled as ordered: {reasons}",
            hint=fix or f"deepinfer plugins --why {by_order[0].spec.name}",
        )
        return SlotChoice(wish=wish, rows=rows, unfilled=unfilled)
    warning = ""
    if picked.spec.name != names[0]:
        first = by_order[0]
        warning = f"{wish.title} fell back to {picked.spec.name}: {first.spec.name} {first.reason}"
    return SlotChoice(wish=wish, rows=rows, picked=picked, warning=warning)


def _rows(
    wish: Wish, fitting: Sequence[Candidate], picked: Candidate | None, names: tuple[str, ...]
) -> tuple[Row, ...]:
    rows = []
    for item in fitting:
        state, reason = _state(item)
        if item is picked:
            state, reason = "picked", item.reason
        elif item.usable and item.spec.name not in names:
            state = "not asked for"
            reason = f"the configuration names {', '.join(names)}"
        rows.append(Row(item, state, reason))
    return _sorted(rows)


def _state(item: Candidate) -> tuple[CandidateState, str]:
    if item.judgement == "usable":
        return "outranked", item.reason or f"score {item.score}"
    return item.judgement, item.reason


def _sorted(rows: Sequence[Row]) -> tuple[Row, ...]:
    order = (
        "picked",
        "outranked",
        "not asked for",
        "unusable",
        "contract-mismatch",
        "probe-failed",
    )
    return tuple(sorted(rows, key=lambda row: order.index(row.state)))


def _unknown(
    wish: Wish, name: str, candidates: Sequence[Candidate], fitting: Sequence[Candidate]
) -> Unfilled | None:
    """What to say about a name that nobody offers, or that does not fill this slot."""
    if name in (item.spec.name for item in fitting):
        return None
    known = sorted({item.spec.name for item in candidates})
    if name in known:
        if not wish.exact:
            return None
        slots = next(item.spec.slots for item in candidates if item.spec.name == name)
        return Unfilled(
            message=f"{{slots}} names {name}, which fills {', '.join(slots)} only",
            hint=f"for {wish.title}: {', '.join(sorted({i.spec.name for i in fitting}))}",
        )
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    suggestion = f"did you mean {close[0]}? " if close else ""
    family = name.partition(".")[0]
    distribution = DISTRIBUTIONS.get(family)
    if distribution and not any(one.startswith(f"{family}.") for one in known):
        suggestion += f"install {distribution}, which offers it; "
    place = wish.title if wish.exact else wish.kind
    return Unfilled(
        message=f"{place} names {name}, which no loaded plugin offers",
        hint=f"{suggestion}{wish.kind} components here: {', '.join(known) or 'none'}",
    )


def _nothing(
    wish: Wish, fitting: Sequence[Candidate], skipped: dict[str, str], device: str
) -> Unfilled:
    if wish.kind == "device" and not any(device in item.spec.devices for item in fitting):
        known = sorted({name for item in fitting for name in item.spec.devices})
        return Unfilled(
            message=f"no loaded plugin offers device {device!r}",
            hint=f"devices here: {', '.join(known) or 'none'}; a device of another distribution "
            "must be installed, e.g. deepinfer-nvidia for nvidia (requirements/nvidia.txt)",
        )
    reasons = "; ".join(
        f"{item.spec.name}: {(item.usable and skipped.get(item.offer.key)) or item.reason}"
        for item in fitting
    )
    # What helps a component made for this device comes before the advice to take another one.
    by_device = sorted(fitting, key=lambda item: device not in item.spec.devices)
    fix = next((item.fix for item in by_device if item.fix), "")
    found = reasons or "nobody offers one"
    distribution = DISTRIBUTIONS.get(wish.kind)
    advice = "install a plugin for this device, or choose another device"
    if distribution and not fitting:
        advice = f"install {distribution}, which offers one"
    return Unfilled(
        message=f"nothing can fill {{slots}} on device {device!r}: {found}", hint=fix or advice
    )
