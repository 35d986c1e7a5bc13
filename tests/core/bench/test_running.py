"""Are the times of a run those at which tokens came?"""

from collections.abc import Iterator, Sequence

import pytest
from deepinfer_core.bench.running import Ask, run_load, run_repeatedly
from deepinfer_core.bench.workload import Load
from deepinfer_core.engine.outputs import Completion, Delta, Timings, Usage
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import EngineError, RequestError

LOAD = Load(prompts=((1, 2), (3, 4, 5)), output_tokens=(2, 3))


class Clock:
    """Shows what it was last set to."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def completion(index: int, tokens: int, *, error: RequestError | None = None) -> Completion:
    prompt = len(LOAD.prompts[index])
    return Completion(
        index=index,
        text="",
        token_ids=(9,) * tokens,
        finish_reason="length",
        logprobs=None,
        prompt_logprobs=None,
        usage=Usage(
            prompt_tokens=prompt, completion_tokens=tokens, cached_tokens=index, replayed_tokens=0
        ),
        timings_s=Timings(load=0.0, first_token=None, total=0.0),
        seed=1,
        error=error,
    )


def replay(clock: Clock, events: Sequence[tuple[float, Delta]]) -> Ask:
    """An engine that gives each delta at its time."""

    def ask(prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams]) -> Iterator[Delta]:
        assert tuple(prompts) == LOAD.prompts
        assert [one.max_tokens for one in params] == list(LOAD.output_tokens)
        assert all(one.ignore_eos and one.temperature == 0 for one in params)
        for at_s, delta in events:
            clock.now_s = at_s
            yield delta

    return ask


EVENTS = [
    (1.0, Delta(index=0, token_ids=(9,))),
    (3.0, Delta(index=1, token_ids=(9,))),
    (4.0, Delta(index=0, token_ids=(9,), completion=completion(0, 2))),
    (5.0, Delta(index=1)),
    (9.0, Delta(index=1, token_ids=(9, 9), completion=completion(1, 3))),
]


def test_first_tokens_count_from_the_beginning_and_others_from_the_one_before() -> None:
    clock = Clock()
    found = run_load(replay(clock, EVENTS), LOAD, clock)
    assert found.elapsed_s == 9.0
    assert found.first_token_s == (1.0, 3.0)
    # Two tokens that come together share the time; a delta without a token is no token.
    assert found.gaps_s == (3.0, 3.0, 3.0)


def test_several_first_tokens_have_one_first_token_and_gaps_of_nothing() -> None:
    clock = Clock()
    events = [
        (1.0, Delta(index=0, token_ids=(9, 9), completion=completion(0, 2))),
        (2.0, Delta(index=1, token_ids=(9, 9, 9), completion=completion(1, 3))),
    ]
    found = run_load(replay(clock, events), LOAD, clock)
    assert found.first_token_s == (1.0, 2.0)
    assert found.gaps_s == (0.0, 0.0, 0.0)


def test_tokens_are_counted_by_where_they_came_from() -> None:
    clock = Clock()
    found = run_load(replay(clock, EVENTS), LOAD, clock)
    assert (found.prompt_tokens, found.cached_tokens) == (5, 1)
    assert found.fed_tokens == (2, 2)
    assert found.output_tokens == (2, 3)


def test_a_failed_request_fails_the_run() -> None:
    clock = Clock()
    refused = RequestError("no")
    events = [(1.0, Delta(index=0, completion=completion(0, 0, error=refused)))]
    with pytest.raises(RequestError, match="no"):
        run_load(replay(clock, events), LOAD, clock)


def test_a_request_that_ends_early_fails_the_run() -> None:
    clock = Clock()
    events = [(1.0, Delta(index=1, token_ids=(9, 9), completion=completion(1, 2)))]
    with pytest.raises(EngineError, match="prompt 2 got 2 tokens, asked for 3"):
        run_load(replay(clock, events), LOAD, clock)


@pytest.mark.parametrize(("warmup", "repeats"), [(0, 1), (1, 1), (2, 3)])
def test_warm_up_runs_are_run_and_not_returned(warmup: int, repeats: int) -> None:
    numbers: list[int] = []

    class Source:
        def load(self, run: int) -> Load:
            numbers.append(run)
            return LOAD

    advanced: list[None] = []
    runs = run_repeatedly(
        replay(Clock(), EVENTS),
        Source(),  # type: ignore[arg-type]
        warmup=warmup,
        repeats=repeats,
        advance=lambda: advanced.append(None),
    )
    assert len(runs) == repeats
    assert numbers == list(range(warmup + repeats))
    assert len(advanced) == warmup + repeats
