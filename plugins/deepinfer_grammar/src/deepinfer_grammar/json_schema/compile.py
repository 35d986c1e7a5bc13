"""Which rules match exactly (or within) the JSON texts that a schema allows?"""

from __future__ import annotations

from deepinfer_grammar.errors import SchemaFault, TooLarge
from deepinfer_grammar.json_schema.document import Document
from deepinfer_grammar.json_schema.formulas import ANYTHING, NOTHING, Formula, Schema
from deepinfer_grammar.json_schema.grammar import JsonRules
from deepinfer_grammar.json_schema.meaning import Meaning
from deepinfer_grammar.rules import RuleSet

__all__ = ["schema_rules"]


def schema_rules(text: str) -> RuleSet:
    """Rules of a schema text.

    Raises:
        GrammarFault: it is no JSON, no schema, or asks for what cannot be enforced; with the path.
    """
    document = Document(text)
    meaning = Meaning(document)
    if isinstance(document.root, bool):
        formula: Formula = ANYTHING if document.root else NOTHING
    else:
        formula = Schema(document.start())
    try:
        return JsonRules(meaning).build(formula)
    except TooLarge as error:
        raise SchemaFault(error.message, "#") from error
