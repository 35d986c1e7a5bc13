"""What is a request told when it fails?"""

from __future__ import annotations

from deepinfer_core.engine.rows import RowRequest
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.errors import DeadlineExceeded, DeepInferError, EngineError, RequestError

__all__ = ["expired", "failed_step", "invalid_row"]


def expired(sequence: Sequence) -> DeepInferError:
    """It did not end in time."""
    timeout_s = sequence.request.options.timeout_s
    return DeadlineExceeded(
        f"the request was to end within {timeout_s} s, and drew {sequence.output_count} tokens",
        hint="give it more time, or ask for fewer tokens",
    )


def failed_step(error: Exception) -> DeepInferError:
    """A step that fed it raised an error; one of this project's own stays as it is."""
    if isinstance(error, DeepInferError):
        return error
    text = " ".join(str(error).split())
    failure = EngineError(
        f"a step failed: {type(error).__name__}: {text}",
        hint="the other requests are unharmed; run with telemetry.level=debug for the traceback",
    )
    failure.__cause__ = error
    return failure


def invalid_row(row: RowRequest, vocabulary: int) -> DeepInferError:
    """Nothing could be drawn from one of its rows.

    Args:
        row: what was asked for.
        vocabulary: number of token ids.
    """
    if not row.allows_any(vocabulary):
        return RequestError(
            f"no token may be drawn at position {row.position}",
            hint="grammar, allowed_token_ids, bad_words, bad_words_ids, min_tokens, "
            "first_n_token_no_eos and engine.decode_token_blacklist leave none; loosen one",
        )
    return EngineError(
        f"the model gave no valid distribution for position {row.position}",
        hint="deepinfer checkpoint verify finds damaged weights",
    )
