"""Which rules does a grammar of any kind stand for?"""

from __future__ import annotations

from deepinfer_core.interfaces.grammar import GrammarText, GrammarVocabulary

from deepinfer_grammar.beginning import check_first_characters
from deepinfer_grammar.ebnf import parse_ebnf
from deepinfer_grammar.errors import GrammarFault, SchemaFault, TextFault
from deepinfer_grammar.json_schema.compile import schema_rules
from deepinfer_grammar.json_schema.document import pointer
from deepinfer_grammar.json_text import heaviest, parsed_json
from deepinfer_grammar.regular.determinise import automaton
from deepinfer_grammar.regular.dfa import Dfa, of_texts
from deepinfer_grammar.regular.rules_of import add_automaton
from deepinfer_grammar.regular.syntax import parse
from deepinfer_grammar.rules import EMPTY, RuleSet, pruned

__all__ = ["MAX_GRAMMAR_BYTES", "grammar_rules", "rules_of"]

MAX_GRAMMAR_BYTES = 1_000_000
"""Longest text of a grammar. Its rules are many times as long."""

_JSON_KINDS = ("json_schema", "choice", "structural_tag")


def grammar_rules(grammar: GrammarText, vocabulary: GrammarVocabulary) -> RuleSet:
    """Rules of a grammar without those that match nothing.

    Raises:
        GrammarFault: the grammar is wrong, too long, asks for what cannot be enforced, matches no
            text at all, or begins as no token does.
    """
    _check_size(grammar)
    try:
        found = pruned(_rules(grammar, vocabulary))
    except RecursionError as error:
        raise SchemaFault("the grammar is nested too deeply", "#") from error
    if found is None:
        from deepinfer_grammar.nothing import nothing_matches

        raise nothing_matches(grammar, vocabulary)
    check_first_characters(found, grammar, vocabulary)
    return found


def _check_size(grammar: GrammarText) -> None:
    try:
        data = grammar.text.encode()
    except UnicodeEncodeError as error:
        raise TextFault("half of a surrogate pair is no character", error.start) from error
    if len(data) <= MAX_GRAMMAR_BYTES:
        return
    what, hint = f"the grammar has {len(data)} bytes", f"at most {MAX_GRAMMAR_BYTES} are taken"
    if grammar.kind in _JSON_KINDS:
        raise SchemaFault(f"{what}, most of them here", pointer(heaviest(grammar.text)), hint=hint)
    taken = len(data[:MAX_GRAMMAR_BYTES].decode(errors="ignore"))
    raise TextFault(f"{what}, and would have to end", taken, hint=hint)


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
                raise TextFault(
                    "json_object has no text, and found one",
                    0,
                    hint="leave it out, or use json_schema",
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
    found = parsed_json(text, "choice")
    if not isinstance(found, list):
        raise SchemaFault("choice must be a JSON list of texts", "#", hint='such as ["yes", "no"]')
    for index, one in enumerate(found):
        if not isinstance(one, str):
            raise SchemaFault("must be a text", f"#/{index}", hint='such as ["yes", "no"]')
        if any("\ud800" <= letter <= "\udfff" for letter in one):
            raise SchemaFault("half of a surrogate pair is no character", f"#/{index}")
    if not found:
        raise SchemaFault("choice is an empty list", "#", hint="give at least one text")
    return found
