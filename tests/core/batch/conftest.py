"""A batch over an engine with the fake runner: files, lines and a service."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.batch.input_file import read_lines, scan_input
from deepinfer_core.batch.output_file import OutputFile
from deepinfer_core.batch.run import Service, answer_lines
from deepinfer_core.engine.admission import Rules
from deepinfer_core.engine.batch import Batch
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.pages import PageCounts
from deepinfer_core.engine.router import Router
from deepinfer_core.engine.stream import Stream
from deepinfer_core.engine.tokenizer import Tokenizer, open_tokenizer
from deepinfer_core.schedule.snapshot import Limits
from deepinfer_core.testing.byte_tokenizer import byte_tokenizer_source
from deepinfer_core.testing.fake_runner import FakeRunner

BLOCK = 4
SEATS = 2

Answer = dict[str, Any]


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    (folder / "tokenizer.json").write_text(byte_tokenizer_source(), encoding="utf-8")
    opened = open_tokenizer(folder)
    assert opened is not None
    return opened


@pytest.fixture
def make_engine(tokenizer: Tokenizer) -> Callable[..., Engine]:
    def build(runner: FakeRunner | None = None, *, asynchronous: bool = True) -> Engine:
        limits = Limits(max_rows=8, max_sequences=SEATS, block_tokens=BLOCK, usable_blocks=64)
        rules = Rules(vocabulary=265, max_model_tokens=64)
        batch = Batch(limits, PageCounts(blocks=65, slots=SEATS + 1))
        runner = runner or FakeRunner(265, BLOCK)
        return Engine(runner, batch, rules, tokenizer, is_asynchronous=asynchronous)

    return build


@pytest.fixture
def service_over(tokenizer: Tokenizer) -> Callable[..., Service]:
    """What a batch needs, over an engine."""

    def build(engine: Engine, **changes: Any) -> Service:
        router = Router(engine, lambda text: [0, *tokenizer.encode(text)], lambda update: None)
        fields = {
            "open_stream": lambda: Stream(router, []),
            "encode_chat": lambda messages: [0, *tokenizer.encode(messages[-1]["content"])],
            "tokenizer": tokenizer,
            "fingerprint": "fp_1",
            "engine_seed": None,
            "seats": SEATS,
            "model": "the model",
        }
        return Service(**(fields | changes))

    return build


@pytest.fixture
def answer_file(
    make_engine: Callable[..., Engine], service_over: Callable[..., Service]
) -> Callable[[Path, Path], None]:
    """Run a whole batch from file to file."""

    def run(source: Path, target: Path) -> None:
        with OutputFile(target) as output:
            scan = scan_input(source, output.answered)
            lines = read_lines(source, scan, output.answered)
            for answer in answer_lines(service_over(make_engine()), lines):
                output.append(answer)

    return run


@pytest.fixture
def request_text() -> Callable[..., str]:
    """One line of an input; keywords are fields of the body, or keys of the line."""

    def text(custom_id: str, *, url: str = "/v1/completions", **body: Any) -> str:
        body = {"prompt": custom_id, "max_tokens": 3, **body}
        line = {"custom_id": custom_id, "method": "POST", "url": url, "body": body}
        return json.dumps(line) + "\n"

    return text
