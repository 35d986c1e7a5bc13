"""How does JSON become a typed record, with an error that a reader understands?

Only what configurations need: numbers, strings, booleans, lists, nested records, and None. A key
of the ``HARMLESS`` list is dropped, because writers of checkpoints add it and it changes nothing
about the network; every other unknown key is refused, since it could mean a structure that is not
implemented.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from difflib import get_close_matches
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from deepinfer_core.errors import ConfigError

__all__ = ["HARMLESS", "read_record", "require", "unique_keys", "write_record"]

Record = TypeVar("Record")

HARMLESS = frozenset(
    {
        "_attn_implementation",
        "_attn_implementation_autoset",
        "_name_or_path",
        "architectures",
        "auto_map",
        "bos_token_id",
        "chunk_size_feed_forward",
        "dtype",
        "eos_token_id",
        "id2label",
        "initializer_range",
        "is_encoder_decoder",
        "label2id",
        "output_attentions",
        "output_hidden_states",
        "pad_token_id",
        "problem_type",
        "return_dict",
        "tie_word_embeddings",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    }
)

_LARGEST_NUMBER = 2**31 - 1
"""Beyond it sizes overflow 32-bit kernel arguments; no published value comes near."""

_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "a string"}


def read_record(record: type[Record], data: object, *, where: str) -> Record:
    """Build a dataclass from a parsed JSON object.

    A field may name an ``alias`` in its metadata: a second spelling of its key.

    Args:
        record: the dataclass.
        data: what JSON gave.
        where: dotted key of ``data`` in the file, empty at the top.

    Raises:
        ConfigError: not an object, or a key is missing, unknown, given twice or of the wrong type.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where or 'the file'}: asked for an object, found {_shown(data)}")
    hints = get_type_hints(record)
    values: dict[str, Any] = {}
    known: set[str] = set()
    for item in fields(record):  # type: ignore[arg-type]
        names = [item.name, *([item.metadata["alias"]] if "alias" in item.metadata else [])]
        known.update(names)
        given = [name for name in names if name in data]
        if len(given) > 1:
            raise ConfigError(f"{_key(where, item.name)} is given twice, as {' and '.join(given)}")
        if given:
            key = _key(where, given[0])
            values[item.name] = _convert(hints[item.name], data[given[0]], key)
        elif _is_required(item):
            raise ConfigError(
                f"{_key(where, item.name)} is missing",
                hint="the file describes another model, or is incomplete",
            )
    _refuse_unknown(set(data) - known - HARMLESS, known, where)
    return record(**values)


def require(is_met: bool, key: str, found: object, allowed: str) -> None:
    """Refuse a value of the configuration unless a condition holds.

    Args:
        is_met: the condition.
        key: dotted key.
        found: its value.
        allowed: which values there may be, in words.

    Raises:
        ConfigError: the condition does not hold.
    """
    if not is_met:
        raise ConfigError(
            f"{key}: asked for {allowed}, found {_shown(found)}",
            hint="this implementation runs DeepSeek-V4.1-Flash and models of its structure",
        )


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of a JSON parser's pairs; the plain parser lets the last of two keys win.

    Raises:
        ValueError: a key stands twice.
    """
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {name} stands twice")
        found[name] = value
    return found


def write_record(record: Any) -> dict[str, Any]:
    """Turn a dataclass into what ``read_record`` reads; None values are left out."""
    result: dict[str, Any] = {}
    for item in fields(record):
        value = getattr(record, item.name)
        if is_dataclass(value):
            result[item.name] = write_record(value)
        elif isinstance(value, tuple):
            result[item.name] = list(value)
        elif value is not None:
            result[item.name] = value
    return result


def _is_required(item: Field[Any]) -> bool:
    return item.default is MISSING and item.default_factory is MISSING


def _convert(hint: Any, value: object, key: str) -> Any:
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for choice in choices:
        if choice is types.NoneType:
            if value is None:
                return None
        elif isinstance(choice, type) and is_dataclass(choice):
            return read_record(choice, value, where=key)
        elif get_origin(choice) is tuple:
            if isinstance(value, list):
                element = get_args(choice)[0]
                return tuple(
                    _convert(element, entry, f"{key}[{place}]") for place, entry in enumerate(value)
                )
        elif _matches(choice, value):
            return choice(value)
    allowed = " or ".join(_describe(choice) for choice in choices)
    raise ConfigError(f"{key}: asked for {allowed}, found {_shown(value)}")


def _matches(kind: type, value: object) -> bool:
    if kind in (int, float):
        # Parsers take NaN, Infinity and any number of digits; none of these is a value here.
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return (kind is float or isinstance(value, int)) and abs(value) <= _LARGEST_NUMBER
    return isinstance(value, kind)


def _describe(hint: Any) -> str:
    if hint is types.NoneType:
        return "null"
    if get_origin(hint) is tuple:
        return f"a list, each entry {_NAMES[get_args(hint)[0]]}"
    return _NAMES.get(hint, "an object")


def _refuse_unknown(unknown: set[str], known: set[str], where: str) -> None:
    for name in sorted(unknown):
        near = get_close_matches(name, sorted(known), n=1)
        hint = f"did you mean {near[0]}?" if near else "this implementation has no such structure"
        raise ConfigError(f"{_key(where, name)} is unknown", hint=hint)


def _key(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _shown(value: object) -> str:
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= 60 else f"{text[:57]}..."
