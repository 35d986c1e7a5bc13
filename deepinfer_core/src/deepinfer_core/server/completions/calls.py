"""Which engine requests does one call consist of, and how is it ended from outside?"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from deepinfer_core.engine.sample_seeds import sample_seed
from deepinfer_core.errors import EngineUnavailable, RequestError
from deepinfer_core.interfaces.async_engine import (
    AsyncEngine,
    GenerateRequest,
    Item,
    Started,
    Tokens,
)
from deepinfer_core.interfaces.protocol import HttpCall
from deepinfer_core.server.completions.answers import ChoiceText
from deepinfer_core.server.completions.bodies import CompletionAsk
from deepinfer_core.server.completions.plain_text import PlainText

__all__ = ["CallsInWork", "CompletionCall", "prepare_call"]

_MAX_USER_BYTES = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionCall:
    """A call that is ready to run.

    Attributes:
        call: as it came.
        ask: what it asks for.
        requests: one for each choice.
        choices: what becomes of them, in the same order.
        since_s: when it came, on a monotonic clock.
    """

    call: HttpCall
    ask: CompletionAsk
    requests: tuple[GenerateRequest, ...]
    choices: tuple[ChoiceText, ...]
    since_s: float

    def note_first_token(self) -> None:
        """Note when the first token came."""
        if self.call.notes.first_token_s is None:
            self.call.notes.first_token_s = time.monotonic() - self.since_s

    def take(self, place: int, item: Item) -> None:
        """Keep what came of one request, and note what the access log wants.

        Raises:
            EngineUnavailable: the service ended it; it may be asked again.
        """
        self.choices[place].take(item)
        notes = self.call.notes
        if isinstance(item, Tokens):
            self.note_first_token()
        elif isinstance(item, Started):
            if notes.queue_s is None:
                notes.queue_s = time.monotonic() - self.since_s
        else:
            notes.finish_reason = notes.finish_reason or item.reason
            notes.ended_by = notes.ended_by or item.aborted_by or ""
            if item.aborted_by == "shutdown":
                raise EngineUnavailable("the service is shutting down", hint="ask again later")


def prepare_call(
    call: HttpCall, ask: CompletionAsk, text: PlainText, max_model_len: int, since_s: float
) -> CompletionCall:
    """Encode the prompts of a call and check that they fit; takes long for long texts.

    Raises:
        RequestError: a prompt does not fit, or its text cannot be encoded.
    """
    salt = _cache_salt(call.key_label, call.body.get("user"))
    requests: list[GenerateRequest] = []
    choices: list[ChoiceText] = []
    count = len(ask.prompts) * ask.samples
    for prompt in ask.prompts:
        ids = text.prompt(prompt, ask.suffix)
        params = replace(ask.params, max_tokens=_limit(ask, len(ids), max_model_len))
        echo = text.echo(prompt) if ask.echo else None
        for sample in range(ask.samples):
            place = len(requests)
            seed = None if params.seed is None else sample_seed(params.seed, sample)
            requests.append(
                GenerateRequest(
                    request_id=call.request_id if count == 1 else f"{call.request_id}-{place}",
                    prompt_token_ids=ids,
                    params=replace(params, seed=seed),
                    cache_salt=salt,
                )
            )
            choices.append(
                ChoiceText(
                    place,
                    echo=echo,
                    prompt_ids=ids,
                    is_scored=params.alternatives is not None,
                    is_scored_only=ask.is_scored_only,
                    tokenizer=text.tokenizer,
                )
            )
    return CompletionCall(
        call=call,
        ask=ask,
        requests=tuple(requests),
        choices=tuple(choices),
        since_s=since_s,
    )


def _limit(ask: CompletionAsk, prompt_tokens: int, max_model_len: int) -> int:
    """Most tokens of one choice; what was not asked for gives way to a long prompt."""
    wanted, room = ask.params.max_tokens, max_model_len - prompt_tokens
    if room < 1 or (ask.has_limit and wanted > room):
        asked = 0 if ask.is_scored_only else wanted
        raise RequestError(
            f"the model's longest sequence has {max_model_len} tokens, and the prompt has "
            f"{prompt_tokens} and max_tokens is {asked}",
            hint="shorten the prompt or lower max_tokens; at least one token must fit behind it",
        )
    return min(wanted, room)


def _cache_salt(key_label: str, user: object) -> str:
    """Calls share cached prefixes if they came with the same key for the same user."""
    if user is None:
        user = ""
    if not isinstance(user, str) or len(user.encode("utf-8", "replace")) > _MAX_USER_BYTES:
        raise RequestError(
            "user is no text or too long", hint=f"give at most {_MAX_USER_BYTES} bytes of text"
        )
    if not key_label and not user:
        return ""
    text = f"{len(key_label)}:{key_label}{user}"
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


class CallsInWork:
    """Knows the engine requests of calls that have several."""

    def __init__(self) -> None:
        self._of_call: dict[str, tuple[str, ...]] = {}

    @contextmanager
    def keep(self, prepared: CompletionCall) -> Iterator[None]:
        """Know a call while it runs."""
        name = prepared.call.request_id
        self._of_call[name] = tuple(request.request_id for request in prepared.requests)
        try:
            yield
        finally:
            self._of_call.pop(name, None)

    def abort(self, engine: AsyncEngine, request_id: str) -> bool:
        """End a call, or a request of whichever protocol; whether anything was in work."""
        names = self._of_call.get(request_id, (request_id,))
        return sum(engine.abort(name) for name in names) > 0
