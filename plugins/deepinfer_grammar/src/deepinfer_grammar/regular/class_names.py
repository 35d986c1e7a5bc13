"""Which characters do the names of classes stand for?"""

from __future__ import annotations

from deepinfer_grammar.regular.charset import ANY, CharSet, of_text, unicode_category, union

__all__ = ["ASCII_SPACE", "DIGIT", "POSIX", "SPACE", "WORD", "category"]

DIGIT: CharSet = ((48, 57),)
WORD: CharSet = ((48, 57), (65, 90), (95, 95), (97, 122))
ASCII_SPACE = of_text(" \t\n\r\f\v")
# ECMA-262: white space and line ends.
SPACE = union(
    ASCII_SPACE, of_text("\u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff"), [(0x2000, 0x200A)]
)

POSIX: dict[str, CharSet] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": of_text(" \t"),
    "cntrl": ((0, 31), (127, 127)),
    "digit": DIGIT,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ASCII_SPACE,
    "upper": ((65, 90),),
    "word": WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_LONG_NAMES = {
    "Letter": "L", "Lowercase_Letter": "Ll", "Uppercase_Letter": "Lu", "Titlecase_Letter": "Lt",
    "Modifier_Letter": "Lm", "Other_Letter": "Lo", "Cased_Letter": "LC", "Mark": "M",
    "Nonspacing_Mark": "Mn", "Spacing_Mark": "Mc", "Enclosing_Mark": "Me", "Number": "N",
    "Decimal_Number": "Nd", "Letter_Number": "Nl", "Other_Number": "No", "digit": "Nd",
    "Punctuation": "P", "Connector_Punctuation": "Pc", "Dash_Punctuation": "Pd",
    "Open_Punctuation": "Ps", "Close_Punctuation": "Pe", "Initial_Punctuation": "Pi",
    "Final_Punctuation": "Pf", "Other_Punctuation": "Po", "Symbol": "S", "Math_Symbol": "Sm",
    "Currency_Symbol": "Sc", "Modifier_Symbol": "Sk", "Other_Symbol": "So", "Separator": "Z",
    "Space_Separator": "Zs", "Line_Separator": "Zl", "Paragraph_Separator": "Zp", "Other": "C",
    "Control": "Cc", "Format": "Cf", "Private_Use": "Co", "Unassigned": "Cn",
    "punct": "P", "cntrl": "Cc",
}  # fmt: skip
_BEYOND_CATEGORIES: dict[str, CharSet] = {"ASCII": ((0, 127),), "Any": ANY}


def category(name: str) -> CharSet | None:
    """Characters of a property by its name; None if there is no such property."""
    return _BEYOND_CATEGORIES.get(name) or unicode_category(_LONG_NAMES.get(name, name))
