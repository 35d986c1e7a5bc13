"""Which faults of a grammar can a user see?

All are requests' faults: ``UnsupportedGrammar`` of the core, with the place in the message.
"""

from __future__ import annotations

from deepinfer_core.errors import UnsupportedGrammar

__all__ = ["GrammarFault", "SchemaFault", "TextFault", "TooLarge"]


class GrammarFault(UnsupportedGrammar):
    """The grammar is wrong, cannot be enforced, or nothing matches it."""


class TextFault(GrammarFault):
    """A regular expression or EBNF text is wrong at a place.

    Args:
        what: what is wrong there.
        position: index of the character.
        hint: what to write instead.
    """

    def __init__(self, what: str, position: int, *, hint: str = "") -> None:
        super().__init__(f"{what} at character {position}", hint=hint)
        self.what = what
        self.position = position


class SchemaFault(GrammarFault):
    """A JSON Schema is wrong, or asks for what cannot be enforced, at a place.

    Args:
        what: what is wrong there.
        path: JSON pointer of the keyword, with ``#`` in front.
        hint: what to write instead.
    """

    def __init__(self, what: str, path: str, *, hint: str = "") -> None:
        super().__init__(f"{path}: {what}", hint=hint)
        self.what = what
        self.path = path


class TooLarge(GrammarFault):
    """The grammar is well formed, but an automaton or a table of it would pass a limit."""
