"""Program: an engine's process for tests, over the fake runner, and how it is started.

It loads in a moment and draws what ``fake_token`` says. Whatever it loses or holds twice ends it:
its books are compared whenever a request ends.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from deepinfer_core import errors
from deepinfer_core.config import LoadedSettings
from deepinfer_core.engine.admission import Rules
from deepinfer_core.engine.batch import Batch
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.pages import PageCounts
from deepinfer_core.engine.prefix_reuse import ReusePolicy
from deepinfer_core.engine.service.child import run
from deepinfer_core.engine.service.opening import OpenedEngine
from deepinfer_core.engine.tokenizer import Tokenizer, open_tokenizer
from deepinfer_core.schedule.snapshot import Limits
from deepinfer_core.telemetry.progress import ProgressStream
from deepinfer_core.testing.byte_tokenizer import VOCABULARY, byte_facts, byte_tokenizer_source
from deepinfer_core.testing.fake_runner import FakeRunner

__all__ = ["FakeService", "command_of", "fake_engine"]

_BLOCK_TOKENS = 4
_BLOCKS = 512
_SNAPSHOTS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeService:
    """How the process behaves.

    Attributes:
        step_s: least time of a step.
        sequences: that run at once.
        longest: tokens of a prompt and its answer.
        load_s: time of loading.
        refusal: name of an error that loading ends with; empty: none.
        exit_status: status with which loading ends the process; None: it does not.
        marker: a file that is there after the first start, and makes later ones fail; empty: none.
    """

    step_s: float = 0.0
    sequences: int = 16
    longest: int = 512
    load_s: float = 0.0
    refusal: str = ""
    exit_status: int | None = None
    marker: str = ""


def command_of(service: FakeService) -> list[str]:
    """The program and its arguments, for ``EngineProcess``."""
    module = "deepinfer_core.testing.fake_service"
    return [sys.executable, "-P", "-m", module, json.dumps(asdict(service))]


def fake_engine(service: FakeService) -> Engine:
    """The engine of such a process, for those who want to know what it says."""
    limits = Limits(
        max_rows=256,
        max_sequences=service.sequences,
        block_tokens=_BLOCK_TOKENS,
        usable_blocks=_BLOCKS,
    )
    counts = PageCounts(
        blocks=_BLOCKS + 1, slots=service.sequences + 1 + _SNAPSHOTS, snapshots=_SNAPSHOTS
    )
    policy = ReusePolicy(block_tokens=_BLOCK_TOKENS, window_tokens=_BLOCK_TOKENS, layers=2)
    return Engine(
        FakeRunner(VOCABULARY, _BLOCK_TOKENS, lambda plan: time.sleep(service.step_s)),
        Batch(limits, counts, policy, None),
        Rules(vocabulary=VOCABULARY, max_model_tokens=service.longest),
        _tokenizer(),
    )


def _tokenizer() -> Tokenizer | None:
    with TemporaryDirectory() as folder:
        Path(folder, "tokenizer.json").write_text(byte_tokenizer_source(), encoding="utf-8")
        return open_tokenizer(Path(folder))


def _open(service: FakeService, progress: ProgressStream) -> OpenedEngine:
    with progress.phase("fake.load", total=2, unit="parts") as phase:
        phase.advance()
        time.sleep(service.load_s)
        if service.exit_status is not None:
            os._exit(service.exit_status)
        if service.marker and (marker := Path(service.marker)).exists():
            raise errors.WeightsError("the weights are gone", hint="bring them back")
        if service.marker:
            marker.touch()
        if service.refusal:
            raise getattr(errors, service.refusal)("it is refused", hint="as the test says")
        phase.advance()
    engine = fake_engine(service)
    facts = byte_facts(
        max_model_len=service.longest,
        components={"sampler": "fake.sampler"},
        report={"process_id": os.getpid()},
    )
    return OpenedEngine(
        engine=engine, facts=facts, finished=lambda update, name: engine.check_integrity()
    )


def main() -> None:
    """Serve as the first argument says."""
    service = FakeService(**json.loads(sys.argv[1]))

    def open_engine(loaded: LoadedSettings, progress: ProgressStream) -> OpenedEngine:
        return _open(service, progress)

    run(int(sys.argv[2]), open_engine)


if __name__ == "__main__":
    # Classes that messages name belong to the module, not to the program.
    import_module("deepinfer_core.testing.fake_service").main()
