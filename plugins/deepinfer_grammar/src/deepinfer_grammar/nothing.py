"""Why does a grammar match no text at all?

Asked only of one of which that is known; the answer is a place, and may take as long as reading the
grammar did.
"""

from __future__ import annotations

from bisect import bisect_left

from deepinfer_core.interfaces.grammar import GrammarText, GrammarVocabulary

from deepinfer_grammar.ebnf import endless_rule
from deepinfer_grammar.errors import GrammarFault, SchemaFault, TextFault
from deepinfer_grammar.json_schema.nothing import impossible_place
from deepinfer_grammar.regular.determinise import automaton
from deepinfer_grammar.regular.dfa import EVERYTHING
from deepinfer_grammar.regular.syntax import parsed_parts
from deepinfer_grammar.regular.tree import Concatenation, Language
from deepinfer_grammar.tags import empty_part

__all__ = ["nothing_matches"]

_WHAT = "the grammar matches no text at all"


def nothing_matches(grammar: GrammarText, vocabulary: GrammarVocabulary) -> GrammarFault:
    """The fault of a grammar that matches nothing, with its place."""
    text = grammar.text
    match grammar.kind:
        case "json_schema":
            path, why = impossible_place(text)
            return SchemaFault(f"{_WHAT}: {why}", path)
        case "regex":
            return TextFault(f"{_WHAT}: none has what the expression asks for", _dead_part(text))
        case "ebnf":
            name, position = endless_rule(text, grammar.root)
            return TextFault(f"{_WHAT}: none ever ends of the rule {name!r}", position)
        case "structural_tag":
            kind, inner, path = empty_part(text, vocabulary)
            part = GrammarText(kind=kind, text=inner)  # type: ignore[arg-type]
            fault = nothing_matches(part, vocabulary)
            return SchemaFault(fault.message, path, hint=fault.hint)
    return GrammarFault(_WHAT)


def _dead_part(text: str) -> int:
    """Where the first part begins that cannot stand behind those before it."""
    parts = parsed_parts(text, "plain")

    def is_dead(count: int) -> bool:
        before = (part for _, part in parts[:count])
        return automaton(Concatenation((*before, Language(EVERYTHING)))).is_empty

    try:
        count = bisect_left(range(len(parts) + 1), True, key=is_dead)
    except GrammarFault:
        return 0
    return parts[count - 1][0] if 0 < count <= len(parts) else 0
