"""Which fields of the public completion interfaces mean the same to the engine?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepinfer_core.engine.checks import shown
from deepinfer_core.errors import RequestError

__all__ = ["SAMPLING_FIELDS", "sampling_fields"]

SAMPLING_FIELDS = (
    "temperature", "top_p", "seed", "stop", "presence_penalty", "frequency_penalty", "logit_bias",
    "top_k", "min_p", "min_tokens", "stop_token_ids", "ignore_eos", "repetition_penalty",
)  # fmt: skip
"""Names that bodies and ``SamplingParams`` share; the second line extends the public interface."""

_MOST_DIGITS = 20
"""More than any token id has; an unlimited number of digits would not be read at all."""


def sampling_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a body's fields, as ``SamplingParams`` takes them.

    Args:
        given: fields that are not null.

    Raises:
        RequestError: the keys of ``logit_bias`` are no token ids.
    """
    fields = {name: given[name] for name in SAMPLING_FIELDS if name in given}
    if "logit_bias" in fields:
        fields["logit_bias"] = _logit_bias(fields["logit_bias"])
    return fields


def _logit_bias(value: object) -> dict[int, Any]:
    """JSON spells token ids as texts."""
    if not isinstance(value, dict) or not all(map(_is_token_id, value)):
        raise RequestError(
            f"logit_bias is {shown(value)}",
            hint='it looks like {"17": -100}: token ids and numbers',
        )
    return {int(name): bias for name, bias in value.items()}


def _is_token_id(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= _MOST_DIGITS
