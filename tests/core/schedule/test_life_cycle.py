"""Random lives of sequences in a model engine: nothing leaks, nobody starves, limits are kept.

The engine of ``conftest.py`` checks every step. For many more examples:
``pytest tests/core/schedule/test_life_cycle.py --hypothesis-profile=many``.
"""

from typing import Any

from deepinfer_core.schedule.snapshot import Limits
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

LONGEST = 24
BLOCK = 4
PER_PROFILE = settings(
    max_examples=3 * settings().max_examples, stateful_step_count=16, deadline=None
)


@st.composite
def some_request(draw: st.DrawFn) -> dict[str, Any]:
    # Short prompts with long answers are let in together and then run out of blocks.
    prompt = draw(st.integers(1, 9) | st.integers(1, LONGEST - 1))
    output = LONGEST - prompt - draw(st.integers(0, LONGEST - prompt - 1))
    return {
        "prompt": prompt,
        "output": output,
        "longest": draw(st.sampled_from([prompt + output, LONGEST])),
        "priority": draw(st.integers(-1, 2)),
        "family": draw(st.integers(0, 1)),
        "shared": draw(st.sampled_from([0, prompt // 2, prompt])),
        "is_ready": draw(st.sampled_from([True, True, True, False])),
    }


REQUESTS = some_request()


class Lives(RuleBasedStateMachine):
    """What users and the cache may do to an engine, in any order."""

    engine_type: Any

    @initialize(
        sequences=st.sampled_from([4, 5, 3, 2, 1]),
        more_rows=st.integers(0, 12),
        more_blocks=st.integers(0, 3),
        mixes=st.booleans(),
        replays=st.booleans(),
        lags=st.booleans(),
        requests=st.lists(REQUESTS, min_size=3, max_size=6),
    )
    def start(
        self,
        sequences: int,
        more_rows: int,
        more_blocks: int,
        mixes: bool,
        replays: bool,
        lags: bool,
        requests: list[dict[str, Any]],
    ) -> None:
        limits = Limits(
            max_rows=sequences + more_rows,
            max_sequences=sequences,
            block_tokens=BLOCK,
            usable_blocks=LONGEST // BLOCK + more_blocks,
            mixes=mixes,
        )
        self.engine = self.engine_type(limits, replays=replays, lags=lags)
        self.submit(requests)

    @rule(requests=st.lists(REQUESTS, min_size=1, max_size=4))
    def submit(self, requests: list[dict[str, Any]]) -> None:
        for request in requests:
            self.engine.submit(**request)

    @rule(count=st.integers(1, 12))
    def run(self, count: int) -> None:
        for _ in range(count):
            self.engine.step()

    @precondition(lambda self: self.engine.sequences)
    @rule(choice=st.integers(0, 99))
    def abort(self, choice: int) -> None:
        everybody = self.engine.sequences
        self.engine.remove(everybody[choice % len(everybody)])
        self.engine.check_books()

    @rule(choice=st.integers(0, 99))
    def make_one_ready(self, choice: int) -> None:
        unready = [one for one in self.engine.waiting if not one.is_ready]
        if unready:
            unready[choice % len(unready)].is_ready = True

    @rule(choices=st.lists(st.integers(0, 99), min_size=1, max_size=6))
    def evict(self, choices: list[int]) -> None:
        for choice in choices:
            self.engine.drop_idle_block(choice)

    @rule()
    def forget_kept_states(self) -> None:
        self.engine.kept_states.clear()

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        # The first in rank needs at most a step for each of its rows, and as many for each that
        # runs before it; twice that if steps alternate, and one more each for a late result.
        count, seats = len(self.engine.sequences), self.engine.limits.max_sequences
        self.engine.drain(max_steps=2 * count * (seats + 1) * (LONGEST + 2))


def test_whatever_happens_nothing_leaks_and_everybody_ends(model_engine: Any) -> None:
    machine = type("LivesOfSequences", (Lives,), {"engine_type": model_engine})
    run_state_machine_as_test(machine, settings=PER_PROFILE)
