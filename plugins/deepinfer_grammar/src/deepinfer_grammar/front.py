"""Which rules does a grammar of any kind stand for?"""

from __future__ import annotations

import json

from deepinfer_core.interfaces.grammar import GrammarText, GrammarVocabulary

from deepinfer_grammar.ebnf import parse_ebnf
from deepinfer_grammar.errors import GrammarFault, TextFault
from deepinfer_grammar.json_schema.compile import schema_rules
from deepinfer_grammar.regular.determinise import automaton
from deepinfer_grammar.regular.dfa import Dfa, of_texts
from deepinfer_grammar.regular.rules_of import add_automaton
from deepinfer_grammar.regular.syntax import parse
from deepinfer_grammar.rules import EMPTY, RuleSet, pruned

__all__ = ["MAX_GRAMMAR_BYTES", "grammar_rules", "rules_of"]

MAX_GRAMMAR_BYTES = 1_000_000
"""Longest text of a grammar. Its rules are many times as long."""


def grammar_rules(grammar: GrammarText, vocabulary: GrammarVocabulary) -> RuleSet:
    """Rules of a grammar without those that match nothing.

    Raises:
        GrammarFault: the grammar is wrong, too long, asks for what cannot be enforced, or matches
            no text at all.
    """
    try:
        size = len(grammar.text.encode())
    except UnicodeEncodeError as error:
        raise TextFault("half of a surrogate pair is no character", error.start) from error
    if size > MAX_GRAMMAR_BYTES:
        raise GrammarFault(
            f"the grammar has {size} bytes", hint=f"at most {MAX_GRAMMAR_BYTES} are taken"
        )
    try:
        found = pruned(_rules(grammar, vocabulary))
    except RecursionError as error:
        raise GrammarFault("the grammar is nested too deeply") from error
    if found is None:
        raise GrammarFault(
            "the grammar matches no text at all", hint="make one of its parts possible"
        )
    return found


def _rules(grammar: GrammarText, vocabulary: GrammarVocabulary) -> RuleSet:
    match grammar.kind:
        case "structural_tag":
            from deepinfer_grammar.tags import tag_rules

            return tag_rules(grammar.text, vocabulary)
        case kind:
            return rules_of(kind, grammar.text, grammar.root)


def rules_of(kind: str, text: str, root: str = "root") -> RuleSet:
    """Rules of a grammar without control tokens; raises like ``grammar_rules``."""
    match kind:
        case "json_schema":
            return schema_rules(text)
        case "json_object":
            if text:
                raise GrammarFault(
                    "json_object has no text", hint="leave it out, or use json_schema"
                )
            return schema_rules('{"type": "object"}')
        case "regex":
            return _of_automaton(automaton(parse(text, "plain")))
        case "ebnf":
            return parse_ebnf(text, root)
        case "choice":
            return _of_automaton(of_texts(_choices(text)))
    raise GrammarFault(f"there is no kind of grammar {kind!r}")


def _of_automaton(dfa: Dfa) -> RuleSet:
    grammar = RuleSet()
    grammar.add("start", EMPTY)
    grammar.rules["start"] = add_automaton(grammar, dfa, "text")
    return grammar


def _choices(text: str) -> list[str]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise TextFault(f"choice is not JSON: {error.msg}", error.pos) from error
    except RecursionError as error:
        raise GrammarFault("choice must be a JSON list of texts") from error
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise GrammarFault("choice must be a JSON list of texts", hint='for example ["yes", "no"]')
    if any("\ud800" <= letter <= "\udfff" for one in found for letter in one):
        raise GrammarFault("choice holds half of a surrogate pair, which is no character")
    if not found:
        raise GrammarFault("choice is an empty list", hint="give at least one text")
    return found
