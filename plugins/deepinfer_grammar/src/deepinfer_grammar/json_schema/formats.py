"""Which texts have each format?

The formats of the standard, as regular expressions after the documents that it names. Formats that
no expression describes exactly are narrower than the standard, never wider. Unknown formats ask for
nothing, as the standard says.
"""

from __future__ import annotations

from functools import cache

from deepinfer_grammar.json_schema.strings import Strings
from deepinfer_grammar.regular.determinise import automaton
from deepinfer_grammar.regular.dfa import Dfa
from deepinfer_grammar.regular.syntax import parse

__all__ = ["FORMATS", "format_strings"]

_DAY = (
    r"((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    r"|02-(0[1-9]|1[0-9]|2[0-8]))"
)
_LEAP = r"([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
_DATE = rf"([0-9]{{4}}-{_DAY}|{_LEAP}-02-29)"
# RFC 3339; the leap second is taken where its UTC minute is 23:59, for the offsets in use.
_OFFSET = r"([zZ]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?"


def _leap_seconds() -> str:
    """Local times at which a minute may have 61 seconds: 23:59 UTC seen from each offset."""
    found = [r"23:59:60(\.[0-9]+)?([zZ]|[+-]00:00)"]
    for hour in range(24):
        for minute in (0, 30):
            if hour or minute:
                for sign in (1, -1):
                    local = (23 * 60 + 59 + sign * (hour * 60 + minute)) % 1440
                    offset = rf"{'[+]' if sign > 0 else '-'}{hour:02}:{minute:02}"
                    found.append(rf"{local // 60:02}:{local % 60:02}:60(\.[0-9]+)?{offset}")
    return "|".join(found)


_TIME = rf"({_CLOCK}{_OFFSET}|{_leap_seconds()})"


def _label(inner: int) -> str:
    return rf"[a-zA-Z0-9]([a-zA-Z0-9-]{{0,{inner}}}[a-zA-Z0-9])?"


# RFC 1123: labels of up to 63 letters, at most 253 in all (RFC 1035). Both bounds at once would
# need a state for each pair of lengths: so up to four long labels, or up to eight of 30 letters.
_HOST = rf"({_label(61)}|({_label(61)}\.){{0,3}}{_label(59)}|({_label(28)}\.){{0,7}}{_label(28)})"
# RFC 5321 and 5322: a dot-atom or a quoted text; an address in brackets.
_ATOM = r"[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+"
_QUOTED = r'"([ !#-\[\]-~]|\\[ -~])+"'
_OCTET = r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(\.{_OCTET}){{3}}"
_GROUP = r"[0-9a-fA-F]{1,4}"
_LAST = rf"({_GROUP}:{_GROUP}|{_IPV4})"
_IPV6 = "|".join(
    [
        rf"({_GROUP}:){{6}}{_LAST}",
        rf"::({_GROUP}:){{5}}{_LAST}",
        rf"({_GROUP})?::({_GROUP}:){{4}}{_LAST}",
        rf"(({_GROUP}:){{0,1}}{_GROUP})?::({_GROUP}:){{3}}{_LAST}",
        rf"(({_GROUP}:){{0,2}}{_GROUP})?::({_GROUP}:){{2}}{_LAST}",
        rf"(({_GROUP}:){{0,3}}{_GROUP})?::{_GROUP}:{_LAST}",
        rf"(({_GROUP}:){{0,4}}{_GROUP})?::{_LAST}",
        rf"(({_GROUP}:){{0,5}}{_GROUP})?::{_GROUP}",
        rf"(({_GROUP}:){{0,6}}{_GROUP})?::",
    ]
)


def _resource(letters: str, private: str) -> tuple[str, str]:
    """RFC 3986 (or 3987, with more letters): a URI, and a reference to one."""
    coded = "%[0-9a-fA-F]{2}"
    unreserved = rf"a-zA-Z0-9._~{letters}\-"
    sub = r"!$&'()*+,;="
    part = rf"([{unreserved}{sub}:@]|{coded})"
    no_colon = rf"([{unreserved}{sub}@]|{coded})+"
    path = rf"(/{part}*)*"
    user = rf"(([{unreserved}{sub}:]|{coded})*@)?"
    future = rf"[vV][0-9a-fA-F]+\.[a-zA-Z0-9._~\-{sub}:]+"
    host = rf"(\[({_IPV6}|{future})\]|([{unreserved}{sub}]|{coded})*)"
    authority = rf"//{user}{host}(:[0-9]*)?{path}"
    tail = rf"(\?({part}|[/?{private}])*)?(#({part}|[/?])*)?"
    absolute = rf"/({part}+{path})?"
    rootless = rf"{part}+{path}"
    whole = rf"[a-zA-Z][a-zA-Z0-9+.\-]*:({authority}|{absolute}|{rootless}|){tail}"
    relative = rf"({authority}|{absolute}|{no_colon}{path}|){tail}"
    return whole, rf"({whole}|{relative})"


_URI, _URI_REFERENCE = _resource("", "")
_IRI_LETTERS = r"\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef\u{10000}-\u{1fffd}\u{20000}-\u{2fffd}"
_IRI, _IRI_REFERENCE = _resource(_IRI_LETTERS, r"\ue000-\uf8ff")
_POINTER = r"(/([^~/]|~[01])*)*"
# An expression of up to three groups inside each other, of characters, classes and repetitions.
_ESCAPE = r"\\([dDwWsSbBnrtfv^$\\.*+?()\[\]{}|/]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|p\{L\})"
_PLAIN = r"[^\\^$.*+?()\[\]{}|]"
_SET_ESCAPE = r"\\([dDwWsSnrtfv^$\\.*+?()\[\]{}|/-]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})"
_SET = rf"\[\^?([^\\\]\[^-]|{_SET_ESCAPE}|a-z|A-Z|0-9)*\]"
_COUNT = r"([*+?]\??)?"


def _expression(depth: int) -> str:
    inner = rf"|\((\?:)?{_expression(depth - 1)}\)" if depth else ""
    atom = rf"({_PLAIN}|\.|{_ESCAPE}|{_SET}{inner})"
    sequence = rf"(\^|\$|{atom}{_COUNT})*"
    return rf"{sequence}(\|{sequence})*"


_DURATION_DATE = r"([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)"
_DURATION_TIME = r"T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)"
_OPERATOR = r"[+#./;?&]?"
_VARIABLE = (
    r"([a-zA-Z0-9_]|%[0-9a-fA-F]{2})(\.?([a-zA-Z0-9_]|%[0-9a-fA-F]{2}))*(:[1-9][0-9]{0,3}|\*)?"
)

FORMATS: dict[str, str] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": rf"{_DATE}[tT]{_TIME}",
    "duration": rf"P({_DURATION_DATE}({_DURATION_TIME})?|{_DURATION_TIME}|[0-9]+W)",
    "email": rf"({_ATOM}(\.{_ATOM})*|{_QUOTED})@({_HOST}|\[{_IPV4}\]|\[IPv6:({_IPV6})\])",
    "idn-email": (
        r"([^\u0000-\u0020@.\u0022\u007f<>()\[\]\\,;:]+(\.[^\u0000-\u0020@.\u0022\u007f<>()\[\]\\,;:]+)*"
        r'|"([^\u0000-\u001f"\\\u007f]|\\[ -~])+")'
        r"@[\p{L}\p{M}\p{N}]([\p{L}\p{M}\p{N}-]*[\p{L}\p{M}\p{N}])?"
        r"(\.[\p{L}\p{M}\p{N}]([\p{L}\p{M}\p{N}-]*[\p{L}\p{M}\p{N}])?)*"
    ),
    "hostname": _HOST,
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "uri": _URI,
    "uri-reference": _URI_REFERENCE,
    "iri": _IRI,
    "iri-reference": _IRI_REFERENCE,
    "uri-template": (
        r"([!#$&(-;=?-\[\]_a-z~]|%[0-9a-fA-F]{2}|"
        rf"\{{{_OPERATOR}{_VARIABLE}(,{_VARIABLE})*\}})*"
    ),
    "uuid": r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "json-pointer": _POINTER,
    "relative-json-pointer": rf"(0|[1-9][0-9]*)(#|{_POINTER})",
    "regex": _expression(2),
}
"""Regular expressions of whole texts, by format.

Sources: RFC 3339 (dates and times, and ISO 8601 durations as its appendix has them), RFC 5321 and
6531 (e-mail), RFC 1123 (host names), RFC 2673 and 4291 (addresses), RFC 3986 and 3987 (URI and
IRI), RFC 6570 (templates), RFC 4122 (UUID), RFC 6901 (JSON pointers), ECMA-262 (regular
expressions).
"""


@cache
def _language(name: str) -> Dfa:
    return automaton(parse(f"^({FORMATS[name]})$", "schema"))


def format_strings(name: str) -> Strings | None:
    """The texts of a format; None if the standard has no such format."""
    if name not in FORMATS:
        return None
    return Strings.of(_language(name))
