"""Where in a text does an assertion of no width hold?

It is asked of the sorts of character on both sides: ``word`` is ASCII's, ``letter`` one that only
Unicode counts as part of a word, ``edge`` an end of the text. A *sure* boundary is one under both
readings of a word.
"""

from __future__ import annotations

from deepinfer_grammar.regular.charset import ANY, CharSet, complement, intersect, union
from deepinfer_grammar.regular.class_names import WORD
from deepinfer_grammar.regular.classes import wide_word
from deepinfer_grammar.regular.tree import Place

__all__ = ["holds", "sorts_of"]

NEWLINE: CharSet = ((10, 10),)


def holds(place: Place, before: str, after: str) -> bool:
    """Whether an assertion holds between two sorts of neighbour; ``edge`` is an end of the text."""
    match place:
        case "start":
            return before == "edge"
        case "end":
            return after == "edge"
        case "line_start":
            return before in ("edge", "newline")
        case "line_end":
            return after in ("edge", "newline")
        case "boundary":
            return (before == "word") != (after == "word")
        case "no_boundary":
            return (before == "word") == (after == "word")
        case "sure_boundary":
            return "letter" not in (before, after) and (before == "word") != (after == "word")
        case "sure_no_boundary":
            both = [side if side in ("word", "letter") else "other" for side in (before, after)]
            return both[0] == both[1]


def sorts_of(places: set[Place]) -> dict[str, CharSet]:
    """What assertions must know of a neighbour; ``letter``: only Unicode makes it one of a word."""
    if not places:
        return {"any": ANY}
    sorts = {"word": WORD, "newline": NEWLINE}
    if places & {"sure_boundary", "sure_no_boundary"}:
        sorts["letter"] = intersect(wide_word(), complement(WORD))
    return {**sorts, "other": complement(union(*sorts.values()))}
