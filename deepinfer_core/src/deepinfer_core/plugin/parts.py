"""Which components does a component consist of?

A component may be made of others of its kind, which its options choose: its description names the
options, and each entry of such an option has the name of a component and that one's own options.
They are chosen where slots are, so that whatever is wrong with them is known before anything runs,
and built in front of what consists of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deepinfer_core.errors import NoUsableComponent
from deepinfer_core.interfaces.kinds import slot_title
from deepinfer_core.plugin.choice import Wish, choose
from deepinfer_core.plugin.discovery import Installed
from deepinfer_core.plugin.probing import Candidate
from deepinfer_core.plugin.resolved import Pick

__all__ = ["Assembled", "assemble"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """A component that was picked, with all that it consists of.

    Attributes:
        pick: with its parts; those that have problems are left out.
        plugins: that offer it and its parts.
        problems: of its parts, each with the key that names it.
    """

    pick: Pick
    plugins: frozenset[Installed]
    problems: tuple[NoUsableComponent, ...] = ()


def assemble(
    picked: Candidate,
    settings: Mapping[str, Any],
    wish: Wish,
    candidates: Sequence[Candidate],
    device: str,
    place: tuple[str, ...] = (),
    key: str = "",
) -> Assembled:
    """Choose the parts of a component, and theirs.

    What has not the form of a choice is passed over: the schema of the options says so.

    Args:
        picked: the component.
        settings: its options.
        wish: of the slot.
        candidates: all of its kind.
        device: the configured device.
        place: where it is chosen among the options of what it is a part of.
        key: dotted key of that in the configuration; empty: it fills the slot itself.
    """
    key = key or f"components.{slot_title(wish.kind, wish.slot)}"
    parts: list[Assembled] = []
    problems: list[NoUsableComponent] = []
    for option in picked.spec.parts:
        for number, entry in enumerate(_entries(settings.get(option))):
            own_place, own_key = (option, str(number)), f"{key}.options.{option}.{number}"
            use, options = _choice(entry)
            if use is None:
                continue
            own = Wish(kind=wish.kind, slot=wish.slot, use=use, exact=True)
            choice = choose(own, candidates, device)
            if choice.picked is None:
                assert choice.problem is not None
                text = f"{own_key}.use: {choice.problem.message}"
                problems.append(NoUsableComponent(text, hint=choice.problem.hint))
                continue
            part = assemble(choice.picked, options, own, candidates, device, own_place, own_key)
            parts.append(part)
            problems += part.problems
    pick = Pick(
        kind=wish.kind,
        slot=wish.slot,
        spec=picked.spec,
        settings=dict(settings),
        distribution=picked.offer.plugin.distribution,
        place=place,
        parts=tuple(part.pick for part in parts),
    )
    plugins = frozenset({picked.offer.plugin}).union(*(part.plugins for part in parts))
    return Assembled(pick=pick, plugins=plugins, problems=tuple(problems))


def _entries(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def _choice(entry: object) -> tuple[str | None, Mapping[str, Any]]:
    """Name and options of an entry; None: it is none."""
    if not isinstance(entry, Mapping):
        return None, {}
    use, options = entry.get("use"), entry.get("options", {})
    if not isinstance(use, str) or use in ("", "auto", "none") or not isinstance(options, Mapping):
        return None, {}
    return use, options
