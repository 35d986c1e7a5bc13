"""When are masks made: beside the forward pass of their step?"""

from collections.abc import Callable
from typing import Any

import pytest
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.grammar_masks import Grammars
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.testing.fake_runner import FakeRunner
from deepinfer_core.testing.late_stream import LateStream


class Watching(Grammars):
    """Notes how many forward passes had run, each time that masks were asked for."""

    def __init__(self, runner: FakeRunner) -> None:
        super().__init__()
        self.runner = runner
        self.runs: list[int] = []

    def masked(self, rows: Any, owners: Any) -> Any:
        self.runs.append(len(self.runner.plans))
        return super().masked(rows, owners)


@pytest.mark.parametrize("is_asynchronous", [True, False])
def test_masks_of_a_step_are_made_while_its_forward_pass_is_under_way(
    make_engine: Callable[..., Engine], is_asynchronous: bool
) -> None:
    # Its stream does nothing before somebody waits.
    runner = FakeRunner(265, 4, stream=LateStream())
    engine = make_engine(runner=runner, asynchronous=is_asynchronous)
    engine.grammars = watching = Watching(runner)
    engine.submit(0, [1, 2, 3], SamplingParams(max_tokens=6, seed=1))
    while len(engine.batch):
        engine.step()
    engine.close()
    # All earlier steps are done, whose tokens must be known, and its own is not.
    assert watching.runs[:6] == [0, 1, 2, 3, 4, 5]
