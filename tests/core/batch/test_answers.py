"""The objects of answers: the public form, its errors and its log-probabilities."""

import json

import pytest
from deepinfer_core.batch.answers import answer_of, failure_of
from deepinfer_core.batch.lines import BatchLine, read_line
from deepinfer_core.engine.outputs import Completion, Timings, TokenLogprob, Usage
from deepinfer_core.engine.tokenizer import Tokenizer
from deepinfer_core.errors import DeepInferError, EngineError, RequestError

A, B, HALF, BEGIN, NO_TEXT = 9 + 97, 9 + 98, 9 + 0xC3, 0, 270


def line(url: str = "/v1/completions") -> BatchLine:
    found = {"custom_id": "mine", "method": "POST", "url": url, "body": {}}
    return read_line(json.dumps(found).encode(), 4)


def done(*tokens: int, text: str = "ab", top: tuple[tuple[int, float], ...] = ()) -> Completion:
    logprobs = tuple(
        TokenLogprob(token_id=token, logprob=-0.5, processed_logprob=-0.1, top=top)
        for token in tokens
    )
    return Completion(
        index=0,
        text=text,
        token_ids=tokens,
        finish_reason="stop",
        logprobs=logprobs or None,
        prompt_logprobs=None,
        usage=Usage(prompt_tokens=3, completion_tokens=2),
        timings_s=Timings(load=0, first_token=0, total=0),
        seed=8,
    )


def test_a_completion_has_the_public_form() -> None:
    asked = line()
    shown = answer_of(asked, "m", "fp_1", done(), None)
    assert list(shown) == ["id", "custom_id", "response", "error"]
    assert (shown["id"], shown["custom_id"], shown["error"]) == (asked.line_id, "mine", None)
    response = shown["response"]
    assert (response["status_code"], response["request_id"][:4]) == (200, "req_")
    body = response["body"]
    assert (body["object"], body["model"], body["seed"]) == ("text_completion", "m", 8)
    assert (body["id"][:5], body["system_fingerprint"]) == ("cmpl-", "fp_1")
    assert isinstance(body["created"], int)
    assert body["choices"] == [
        {"index": 0, "text": "ab", "token_ids": [], "logprobs": None, "finish_reason": "stop"}
    ]
    assert body["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_a_conversation_has_the_public_form() -> None:
    body = answer_of(line("/v1/chat/completions"), "m", "fp_1", done(text="\nhi"), None)
    shown = body["response"]["body"]
    assert (shown["object"], shown["id"][:9]) == ("chat.completion", "chatcmpl-")
    assert shown["choices"][0]["message"] == {"role": "assistant", "content": "hi"}


def test_log_probabilities_of_a_completion_list_spellings_and_offsets(
    tokenizer: Tokenizer,
) -> None:
    top = ((A, -0.5), (HALF, -1.0), (NO_TEXT, float("-inf")))
    shown = answer_of(line(), "m", "fp_1", done(A, HALF, B, top=top), tokenizer)
    logprobs = shown["response"]["body"]["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["a", "bytes:\\xc3", "b"]
    assert logprobs["token_logprobs"] == [-0.5] * 3
    assert logprobs["text_offset"] == [0, 1, 2]
    # JSON has no infinity; -9999 stands for it.
    assert logprobs["top_logprobs"][0] == {"a": -0.5, "bytes:\\xc3": -1.0, "token_id:270": -9999.0}


def test_log_probabilities_of_a_conversation_list_bytes(tokenizer: Tokenizer) -> None:
    asked = line("/v1/chat/completions")
    shown = answer_of(asked, "m", "fp_1", done(A, top=((HALF, -1.0),)), tokenizer)
    assert shown["response"]["body"]["choices"][0]["logprobs"] == {
        "content": [
            {
                "token": "a",
                "logprob": -0.5,
                "bytes": [97],
                "top_logprobs": [{"token": "bytes:\\xc3", "logprob": -1.0, "bytes": [0xC3]}],
            }
        ]
    }


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (RequestError("too long", hint="cut it"), 400, "invalid_request_error"),
        (EngineError("broke"), 500, "server_error"),
    ],
)
def test_a_request_that_failed_has_a_status_and_an_error(
    error: DeepInferError, status: int, kind: str
) -> None:
    shown = failure_of(line(), error)
    assert shown["response"]["status_code"] == status
    assert shown["response"]["body"]["error"] == {
        "message": str(error),
        "type": kind,
        "param": None,
        "code": error.code,
    }
    assert shown["error"] == {"code": error.code, "message": str(error), "line": 4}


def test_a_line_that_is_no_request_has_an_error_and_no_response() -> None:
    bad = read_line(b"{", 4)
    assert bad.error is not None
    shown = failure_of(bad, bad.error)
    assert (shown["custom_id"], shown["response"], shown["error"]["line"]) == (None, None, 4)
