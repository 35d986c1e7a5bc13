"""How does a request cross from one process to another?"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from deepinfer_core.engine.grammar_request import GrammarRequest
from deepinfer_core.engine.outputs import TokenLogprob
from deepinfer_core.engine.request_options import DEFAULT_OPTIONS, RequestOptions
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.service.messages import Likelihood, Submit
from deepinfer_core.errors import RequestError
from deepinfer_core.interfaces.async_engine import GenerateRequest

__all__ = ["asked", "likelihood", "submit_message", "token_logprob"]

_ID_BYTES = 4


def submit_message(number: int, request: GenerateRequest) -> Submit:
    """What is sent about a request.

    Raises:
        RequestError: a token id is no number that a vocabulary could have, or more than one answer
            is asked for.
    """
    if request.params.n != 1:
        raise RequestError(
            f"n is {request.params.n}, and a request of a service has one answer",
            hint="ask as often as there are to be answers",
        )
    return Submit(
        number,
        _packed(request.prompt_token_ids),
        _changed_fields(request.params),
        request.cache_salt,
        request.priority,
        request.timeout_s,
        request.request_id,
        request.retention or DEFAULT_OPTIONS.retention,
    )


def asked(message: Submit) -> tuple[tuple[int, ...], SamplingParams, RequestOptions]:
    """Prompt, parameters and options again.

    Raises:
        RequestError: a value is out of range.
    """
    options = RequestOptions(
        cache_salt=message.cache_salt,
        priority=message.priority,
        timeout_s=message.timeout_s,
        retention=message.retention,
    )
    return _unpacked(message.prompt), SamplingParams(**message.params), options


def likelihood(logprob: TokenLogprob) -> Likelihood:
    """What is sent about a token's probability."""
    return Likelihood(
        logprob.token_id, logprob.logprob, logprob.processed_logprob, tuple(logprob.top)
    )


def token_logprob(sent: Likelihood) -> TokenLogprob:
    """The same again."""
    return TokenLogprob(
        token_id=sent.token_id,
        logprob=sent.logprob,
        processed_logprob=sent.processed_logprob,
        top=sent.top,
    )


def _packed(token_ids: tuple[int, ...]) -> bytes:
    try:
        numbers = array("I", token_ids)
    except (TypeError, OverflowError) as error:
        raise RequestError(
            f"prompt_token_ids has what is no token id: {error}",
            hint="token ids are whole numbers from 0 to below the vocabulary",
        ) from error
    assert numbers.itemsize == _ID_BYTES
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _unpacked(data: bytes) -> tuple[int, ...]:
    if len(data) % _ID_BYTES:
        raise RequestError(
            f"a prompt of {len(data)} bytes came", hint=f"token ids have {_ID_BYTES} bytes each"
        )
    numbers = array("I", data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return tuple(numbers)


def _changed_fields(params: SamplingParams) -> dict[str, Any]:
    """Fields that are not the default: of another type counts, as ``0`` and ``False`` differ."""
    found: dict[str, Any] = {}
    for field in fields(params):
        value = getattr(params, field.name)
        if type(value) is not type(field.default) or value != field.default:
            found[field.name] = value
    if (grammar := params.grammar_request) is not None:
        # Checking has turned ``so_args`` into the same grammar, and both together are refused.
        found.pop("so_args", None)
        found["grammar"] = _grammar_fields(grammar)
    return found


def _grammar_fields(grammar: GrammarRequest) -> Mapping[str, Any]:
    return {field.name: getattr(grammar, field.name) for field in fields(grammar)}
