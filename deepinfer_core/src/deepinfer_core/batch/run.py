"""In which order are the requests of a batch run, and when is an answer ready?

In the order of the file, as many at a time as fill the engine's seats twice: whenever a sequence
ends, another one is waiting already, and no more of the file than that is in memory. Answers come
as they are ready, so their order is not that of the requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deepinfer_core.batch.answers import answer_of, failure_of
from deepinfer_core.batch.bodies import Asked, read_body
from deepinfer_core.batch.lines import BatchLine
from deepinfer_core.batch.seeds import seed_of_request
from deepinfer_core.errors import RequestError, WeightsError

if TYPE_CHECKING:
    from deepinfer_core.engine.stream import Stream
    from deepinfer_core.engine.tokenizer import Tokenizer

__all__ = ["WINDOW_PER_SEAT", "Service", "answer_lines"]

WINDOW_PER_SEAT = 2
"""Requests in the engine for each sequence that can run: one runs, one waits for its seat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What a batch needs of a loaded model.

    Attributes:
        open_stream: an empty stream.
        encode_chat: token ids of a conversation.
        tokenizer: of the checkpoint; None without text.
        fingerprint: equal where equal requests get equal tokens.
        engine_seed: ``engine.seed`` of the settings.
        seats: sequences that can run at a time.
        model: name in answers to requests that give none.
    """

    open_stream: Callable[[], Stream]
    encode_chat: Callable[[Sequence[Mapping[str, Any]]], list[int]]
    tokenizer: Tokenizer | None
    fingerprint: str
    engine_seed: int | None
    seats: int
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    """A request in the engine; its prompt is no longer kept here."""

    line: BatchLine
    model: str


def answer_lines(service: Service, lines: Iterator[BatchLine]) -> Iterator[dict[str, Any]]:
    """Answer every line, each exactly once.

    Args:
        service: runs the requests.
        lines: taken one by one, when there is room.

    Yields:
        The answers, as they are ready. Leaving the iterator ends what still runs.

    Raises:
        ConfigError: the library that writes conversations is not installed.
        EngineError: the engine was closed.
    """
    running: dict[int, _Running] = {}
    with service.open_stream() as stream:
        while True:
            while len(running) < WINDOW_PER_SEAT * service.seats:
                line = next(lines, None)
                if line is None:
                    break
                try:
                    index, started = _start(service, stream, line)
                except (RequestError, WeightsError) as error:
                    yield failure_of(line, error)
                else:
                    running[index] = started
            if not running:
                return
            for delta in stream:
                if (done := delta.completion) is None:
                    continue
                asked = running.pop(delta.index)
                if done.error is not None:
                    yield failure_of(asked.line, done.error)
                else:
                    fingerprint, tokenizer = service.fingerprint, service.tokenizer
                    yield answer_of(asked.line, asked.model, fingerprint, done, tokenizer)
                break


def _start(service: Service, stream: Stream, line: BatchLine) -> tuple[int, _Running]:
    if line.error is not None:
        raise line.error
    assert line.custom_id is not None
    seed = seed_of_request(line.custom_id, service.engine_seed)
    asked: Asked = read_body(line.kind, line.body, seed)
    prompt = asked.prompt
    if asked.messages is not None:
        prompt = tuple(service.encode_chat(asked.messages))
    index = stream.add(prompt, asked.params)
    return index, _Running(line=replace(line, body={}), model=asked.model or service.model)
