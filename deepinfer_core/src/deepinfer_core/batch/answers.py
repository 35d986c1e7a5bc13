"""What does the line of an answer look like?

The form of the public batch interface: ``response.body`` is what the service of the same address
would have sent. ``error`` is null exactly where ``status_code`` is 200. Beyond the public form a
choice lists its ``token_ids`` and a body names the ``seed`` that was used, so that an answer can be
repeated. ``created`` is the only field that differs from run to run.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from deepinfer_core.batch.lines import BatchLine
from deepinfer_core.engine.legacy_logprobs import (
    LogprobLists,
    finite_logprob,
    token_piece,
    token_spelling,
)
from deepinfer_core.errors import DeepInferError, RequestError

if TYPE_CHECKING:
    from deepinfer_core.engine.outputs import Completion, TokenLogprob
    from deepinfer_core.engine.tokenizer import Tokenizer

__all__ = ["answer_of", "failure_of"]


def answer_of(
    line: BatchLine, model: str, fingerprint: str, done: Completion, tokenizer: Tokenizer | None
) -> dict[str, Any]:
    """The answer to a request that came to its end.

    Args:
        line: what was asked.
        model: the name that the request gave, or that of the run.
        fingerprint: of what makes equal requests give equal tokens.
        done: what the engine gave; without an error.
        tokenizer: spells the tokens of log-probabilities.
    """
    is_chat = line.kind == "chat"
    usage = done.usage
    body = {
        "id": ("chatcmpl-" if is_chat else "cmpl-") + _key(line),
        "object": "chat.completion" if is_chat else "text_completion",
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": fingerprint,
        "seed": done.seed,
        "choices": [_chat_choice(done, tokenizer) if is_chat else _choice(done, tokenizer)],
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        },
    }
    return _line(line, {"status_code": 200, "request_id": f"req_{_key(line)}", "body": body}, None)


def failure_of(line: BatchLine, error: DeepInferError) -> dict[str, Any]:
    """The answer to a request that failed, or to a line that is no request.

    Args:
        line: what was asked.
        error: why it failed.
    """
    shown = {"code": error.code, "message": str(error), "line": line.number}
    if line.error is not None:
        return _line(line, None, shown)
    is_refused = isinstance(error, RequestError)
    kind = "invalid_request_error" if is_refused else "server_error"
    body = {"error": {"message": str(error), "type": kind, "param": None, "code": error.code}}
    status = 400 if is_refused else 500
    response = {"status_code": status, "request_id": f"req_{_key(line)}", "body": body}
    return _line(line, response, shown)


def _line(
    line: BatchLine, response: dict[str, Any] | None, error: dict[str, Any] | None
) -> dict[str, Any]:
    return {
        "id": line.line_id,
        "custom_id": line.custom_id,
        "response": response,
        "error": error,
    }


def _key(line: BatchLine) -> str:
    return line.line_id.rpartition("_")[2]


def _choice(done: Completion, tokenizer: Tokenizer | None) -> dict[str, Any]:
    logprobs = None
    if done.logprobs is not None:
        pairs = [(entry.token_id, entry) for entry in done.logprobs]
        logprobs = LogprobLists(tokenizer).take(pairs)
    return {
        "index": 0,
        "text": done.text,
        "token_ids": list(done.token_ids),
        "logprobs": logprobs,
        "finish_reason": done.finish_reason,
    }


def _chat_choice(done: Completion, tokenizer: Tokenizer | None) -> dict[str, Any]:
    logprobs = None
    if done.logprobs is not None:
        logprobs = {"content": [_chat_logprob(entry, tokenizer) for entry in done.logprobs]}
    return {
        "index": 0,
        "message": {"role": "assistant", "content": done.text.lstrip("\n")},
        "token_ids": list(done.token_ids),
        "logprobs": logprobs,
        "finish_reason": done.finish_reason,
    }


def _chat_logprob(entry: TokenLogprob, tokenizer: Tokenizer | None) -> dict[str, Any]:
    top = [_chat_token(token, logprob, tokenizer) for token, logprob in entry.top]
    return {**_chat_token(entry.token_id, entry.logprob, tokenizer), "top_logprobs": top}


def _chat_token(token: int, logprob: float, tokenizer: Tokenizer | None) -> dict[str, Any]:
    return {
        "token": token_spelling(token, tokenizer),
        "logprob": finite_logprob(logprob),
        "bytes": list(token_piece(token, tokenizer)),
    }
