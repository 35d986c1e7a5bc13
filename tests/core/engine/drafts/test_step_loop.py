"""What do drafts change in the step loop: ends, rules, counts, and nothing else?"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.drafts.host import Drafting, VerifyAll
from deepinfer_core.engine.outputs import Completion, Delta
from deepinfer_core.engine.rows import RowRequest, RowResult
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.tokenizer import Tokenizer
from deepinfer_core.errors import EngineError
from deepinfer_core.interfaces.draft_planner import DraftOutcome, DraftView, StepTimes
from deepinfer_core.testing.fake_runner import FakeRunner

MakeEngine = Callable[..., Engine]
VOCABULARY, BLOCK, DRAFTS = 265, 4, 5
EOS = 1

both = pytest.mark.parametrize("asynchronous", [False, True], ids=["lockstep", "asynchronous"])


class Told:
    """Guesses that a text goes on as it is told; -1 is a wrong one."""

    def __init__(self, start: int, answer: Sequence[int]) -> None:
        self.start = start
        self.answer = answer

    def __call__(self, seed: int, history: tuple[int, ...]) -> tuple[int, ...]:
        done = len(history) - self.start
        return tuple(token % VOCABULARY for token in self.answer[done : done + DRAFTS])


class Recorder(FakeRunner):
    """Remembers what was asked for."""

    def __init__(self, guesses: Any) -> None:
        super().__init__(VOCABULARY, BLOCK, guesses=guesses)
        self.seen: list[tuple[RowRequest, ...]] = []

    def draw(
        self, rows: tuple[RowRequest, ...], histories: list[tuple[int, ...]]
    ) -> tuple[RowResult, ...]:
        self.seen.append(rows)
        return super().draw(rows, histories)


class Keen(VerifyAll):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.views: list[list[DraftView]] = []
        self.outcomes: list[DraftOutcome] = []
        self.times: list[StepTimes] = []

    def rows(self, views: Sequence[DraftView], *, other_rows: int) -> Sequence[int]:
        self.views.append(list(views))
        return super().rows(views, other_rows=other_rows)

    def learn(self, outcomes: Sequence[DraftOutcome]) -> None:
        self.outcomes += outcomes

    def took(self, times: StepTimes) -> None:
        self.times.append(times)


def drafting_engine(
    make_engine: MakeEngine,
    prompt: list[int],
    guessed: Sequence[int],
    planner: VerifyAll | None = None,
    **options: Any,
) -> Engine:
    """An engine that guesses that the prompt goes on so."""
    runner = Recorder(Told(len(prompt), guessed))
    drafting = Drafting(DRAFTS, planner or VerifyAll())
    return make_engine(rows=24, runner=runner, drafting=drafting, **options)


def drain(engine: Engine) -> tuple[Completion, list[Delta]]:
    deltas = []
    while len(engine.batch):
        deltas += [update.delta for update in engine.step()]
        engine.check_integrity()
    [done] = [delta.completion for delta in deltas if delta.completion is not None]
    return done, deltas


def run(engine: Engine, prompt: list[int], **fields: Any) -> tuple[Completion, list[Delta]]:
    engine.submit(0, prompt, SamplingParams(**{"seed": 0, **fields}))
    return drain(engine)


def spelled(tokenizer: Tokenizer, text: str, **fields: Any) -> dict[str, Any]:
    """Parameters that make the model write this text."""
    ids = tokenizer.encode(text)
    return {"golden_token_ids": ids, "max_tokens": len(ids), **fields}


@both
@pytest.mark.parametrize("stop", [{"stop_token_ids": [9 + ord("d")]}, {"stop": "cd"}])
def test_a_stop_among_accepted_drafts_ends_a_request_there(
    make_engine: MakeEngine, tokenizer: Tokenizer, asynchronous: bool, stop: dict[str, Any]
) -> None:
    """Drafts behind it are dropped, accepted or not."""
    fields = spelled(tokenizer, "abcdefgh", **stop)
    engine = drafting_engine(
        make_engine, [10], fields["golden_token_ids"], asynchronous=asynchronous
    )
    done, deltas = run(engine, [10], logprobs=1, **fields)
    assert tokenizer.decode(done.token_ids) == "abcd"
    assert (done.text, done.finish_reason) == ("ab" if "stop" in stop else "abc", "stop")
    assert done.logprobs is not None
    assert [one.token_id for one in done.logprobs] == list(done.token_ids)
    assert sum((delta.token_ids for delta in deltas), ()) == done.token_ids
    assert sum((delta.logprobs for delta in deltas), ()) == done.logprobs
    assert "".join(delta.text for delta in deltas) == done.text
    assert len(deltas) == 2


@both
def test_an_end_token_among_accepted_drafts_ends_a_request_there(
    make_engine: MakeEngine, asynchronous: bool
) -> None:
    answer = [74, 75, EOS, 76, 77]
    engine = drafting_engine(
        make_engine, [10], answer, eos_ids=frozenset({EOS}), asynchronous=asynchronous
    )
    done, _ = run(engine, [10], golden_token_ids=answer, max_tokens=5)
    assert (done.token_ids, done.finish_reason) == ((74, 75, EOS), "stop")


@both
@pytest.mark.parametrize("most", [1, 2, 3, 6, 7, 8, 13])
def test_a_request_ends_at_its_length_and_feeds_nothing_behind_it(
    make_engine: MakeEngine, asynchronous: bool, most: int
) -> None:
    answer = list(range(100, 130))
    engine = drafting_engine(make_engine, [10, 11], answer, asynchronous=asynchronous)
    done, _ = run(engine, [10, 11], golden_token_ids=answer, max_tokens=most)
    assert (list(done.token_ids), done.finish_reason) == (answer[:most], "length")
    ends = [
        step.start + len(step.token_ids)
        for plan in engine.runner.plans  # type: ignore[attr-defined]
        for step in plan.sequences
    ]
    assert max(ends) <= 2 + most


@both
def test_right_drafts_make_a_step_give_six_tokens(
    make_engine: MakeEngine, asynchronous: bool
) -> None:
    answer = list(range(100, 119))
    planner = Keen()
    engine = drafting_engine(make_engine, [10], answer, planner, asynchronous=asynchronous)
    done, deltas = run(engine, [10], golden_token_ids=answer, max_tokens=19)
    assert [len(delta.token_ids) for delta in deltas] == [1, 6, 6, 6]
    assert (done.usage.drafted_tokens, done.usage.accepted_tokens) == (15, 15)
    assert [outcome[:2] for outcome in planner.outcomes] == [(5, 5)] * 3
    # Of the last steps nobody is told: nothing is planned behind them.
    assert [(times.rows, times.sequences) for times in planner.times] == [(6, 1)] * (
        1 if asynchronous else 2
    )
    registry = engine.instruments.registry
    assert registry.get_sample_value("deepinfer_generation_tokens_total") == 19
    assert registry.get_sample_value("deepinfer_inter_token_latency_seconds_count") == 18
    assert registry.get_sample_value("deepinfer_draft_tokens_total", {"place": "5"}) == 3
    assert registry.get_sample_value("deepinfer_rows_total", {"phase": "prompt"}) == 1


@both
def test_a_wrong_draft_costs_those_behind_it(make_engine: MakeEngine, asynchronous: bool) -> None:
    answer = list(range(100, 114))
    guessed = [*answer[:4], 99, *answer[5:]]
    planner = Keen()
    engine = drafting_engine(make_engine, [10], guessed, planner, asynchronous=asynchronous)
    done, deltas = run(engine, [10], golden_token_ids=answer, max_tokens=14)
    assert list(done.token_ids) == answer
    assert [len(delta.token_ids) for delta in deltas] == [1, 4, 6, 3]
    assert [outcome[:2] for outcome in planner.outcomes] == [(5, 3), (5, 5), (2, 2)]
    assert (done.usage.drafted_tokens, done.usage.accepted_tokens) == (12, 10)


@both
def test_rules_of_a_row_count_the_drafts_before_it(
    make_engine: MakeEngine, asynchronous: bool
) -> None:
    """Penalties see them, ends are kept back by them, and bad sequences go on behind them."""
    answer = [50, 51, 50, 52, 53, 54]
    engine = drafting_engine(
        make_engine, [10], answer, eos_ids=frozenset({EOS}), asynchronous=asynchronous
    )
    run(
        engine, [10], golden_token_ids=answer, max_tokens=6, frequency_penalty=0.5, min_tokens=4,
        stop_token_ids=[7],
    )  # fmt: skip
    first, rows = engine.runner.seen[:2]  # type: ignore[attr-defined]
    assert first[0].seen == ()
    assert [dict(row.seen) for row in rows] == [
        {50: 1},
        {50: 1, 51: 1},
        {50: 2, 51: 1},
        {50: 2, 51: 1, 52: 1},
        {50: 2, 51: 1, 52: 1, 53: 1},
    ]
    assert [row.banned for row in rows] == [(1, 7)] * 3 + [()] * 2
    assert [row.position for row in rows] == [2, 3, 4, 5, 6]
    assert [row.draft for row in rows] == [51, 50, 52, 53, -1]


@both
def test_a_request_that_is_aborted_while_drafts_are_under_way_leaves_nothing(
    make_engine: MakeEngine, asynchronous: bool
) -> None:
    answer = list(range(100, 140))
    engine = drafting_engine(make_engine, [10], answer, asynchronous=asynchronous)
    number = engine.submit(0, [10], SamplingParams(golden_token_ids=answer, max_tokens=40, seed=0))
    for _ in range(3):
        engine.step()
    update = engine.abort(number)
    assert update is not None
    engine.check_integrity()
    assert engine.batch.pages.cache.free_blocks == engine.batch.limits.usable_blocks
    done, _ = run(engine, [10], golden_token_ids=answer, max_tokens=10)
    assert list(done.token_ids) == answer[:10]


def test_a_planner_is_told_what_there_is_and_how_old_its_rates_are(
    make_engine: MakeEngine,
) -> None:
    answer = list(range(100, 119))
    seen = {}
    for asynchronous in (False, True):
        planner = Keen()
        engine = drafting_engine(make_engine, [10], answer, planner, asynchronous=asynchronous)
        run(engine, [10], golden_token_ids=answer, max_tokens=19)
        seen[asynchronous] = [views[0] for views in planner.views if views]
    assert [(one.drafts, one.is_current) for one in seen[False]] == [(5, True)] * 3
    assert [(one.drafts, one.is_current) for one in seen[True]] == [(5, False)] * 3


@pytest.mark.parametrize(("few", "likely"), [(0, 1), (1, 3), (2, 5), (5, 5)])
def test_a_round_that_gave_few_drafts_lets_as_few_be_expected_of_the_next(
    make_engine: MakeEngine, few: int, likely: int
) -> None:
    answer = list(range(100, 140))
    planner = Keen()
    engine = drafting_engine(make_engine, [10], answer, planner, asynchronous=True)
    told = engine.runner.guesses  # type: ignore[attr-defined]
    engine.runner.guesses = lambda seed, history: told(seed, history)[:few]  # type: ignore[attr-defined]
    done, _ = run(engine, [10], golden_token_ids=answer, max_tokens=40)
    assert list(done.token_ids) == answer
    first, second, *others = [views[0].drafts for views in planner.views if views]
    # When the first round is planned for, none is known yet.
    assert (first, second) == (5, likely)
    assert set(others[:-3]) == {likely}


@pytest.mark.parametrize("wrong", [[], [0], [7], [1, 1]])
def test_a_planner_that_plans_what_cannot_be_is_refused(
    make_engine: MakeEngine, wrong: list[int]
) -> None:
    class Wrong(VerifyAll):
        def rows(self, views: Sequence[DraftView], *, other_rows: int) -> Sequence[int]:
            return wrong

    engine = drafting_engine(make_engine, [10], [50] * 20, Wrong(), asynchronous=False)
    with pytest.raises(EngineError, match="Wrong gives"):
        run(engine, [10], max_tokens=9)
    engine.reset()


def test_no_round_is_run_where_the_planner_wants_none(make_engine: MakeEngine) -> None:
    class Never(VerifyAll):
        def drafts_next(self) -> bool:
            return False

    answer = list(range(100, 109))
    engine = drafting_engine(make_engine, [10], answer, Never())
    done, deltas = run(engine, [10], golden_token_ids=answer, max_tokens=9)
    assert [len(delta.token_ids) for delta in deltas] == [1] * 9
    assert (done.usage.drafted_tokens, done.usage.accepted_tokens) == (0, 0)


class Resting(Keen):
    """Wants no drafts, and is asked again behind so many steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def drafts_next(self) -> bool:
        return False

    def rest(self) -> int:
        return self.steps


@pytest.mark.parametrize(("steps", "asked"), [(0, 11), (1, 6), (4, 3), (11, 1)])
@both
def test_a_planner_that_rests_is_not_asked_meanwhile(
    make_engine: MakeEngine, steps: int, asked: int, asynchronous: bool
) -> None:
    answer, planner = list(range(100, 112)), Resting(steps)
    engine = drafting_engine(make_engine, [10], answer, planner, asynchronous=asynchronous)
    done, deltas = run(engine, [10], golden_token_ids=answer, max_tokens=12)
    assert list(done.token_ids) == answer
    assert [len(delta.token_ids) for delta in deltas] == [1] * 12
    assert len(planner.views) == asked


def test_steps_of_a_rest_have_nothing_to_do_with_drafts(make_engine: MakeEngine) -> None:
    engine = drafting_engine(make_engine, [10], [], Resting(3))
    engine.submit(0, [10], SamplingParams(max_tokens=12, ignore_eos=True))
    launched = []
    launch = engine.batch.launch
    engine.batch.launch = lambda: launched.append(launch()) or launched[-1]  # type: ignore[func-returns-value,method-assign]
    drain(engine)
    drafting = [each.drafting is not None for each in launched if each is not None]
    # The prompt, then a step that is planned and three that are not, and so on.
    assert drafting == [True, True, *[False] * 3, True, *[False] * 3, True, *[False] * 2]


def test_whoever_enters_or_ends_is_the_end_of_a_rest(make_engine: MakeEngine) -> None:
    planner = Resting(1000)
    engine = drafting_engine(make_engine, [10], [], planner, asynchronous=False)
    for tokens in (30, 9):
        engine.submit(0, [10], SamplingParams(max_tokens=tokens, ignore_eos=True))
        for _ in range(4):
            engine.step()
    while len(engine.batch):
        engine.step()
    # Alone; when the second enters, and behind its prompt; when it has ended.
    assert list(map(len, planner.views)) == [1, 1, 2, 1]


def test_a_planner_is_told_of_the_steps_of_a_rest_before_it_plans_again(
    make_engine: MakeEngine,
) -> None:
    planner = Resting(4)
    engine = drafting_engine(make_engine, [10], [], planner, asynchronous=False)
    engine.submit(0, [10], SamplingParams(max_tokens=12, ignore_eos=True))
    told = []
    while len(engine.batch):
        engine.step()
        told.append(len(planner.times))
    # The step of the prompt is of another kind.
    assert told == [0, 0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 10]
    assert planner.times[0][:2] == (1, 1)


def test_a_planner_that_gives_way_is_told_of_its_last_steps(make_engine: MakeEngine) -> None:
    first, second = Resting(1000), Resting(1000)
    engine = drafting_engine(make_engine, [10], [], first, asynchronous=False)
    engine.submit(0, [10], SamplingParams(max_tokens=12, ignore_eos=True))
    for _ in range(4):
        engine.step()
    assert not first.times
    assert engine.batch.drafting is not None
    engine.batch.drafting.use(second)
    drain(engine)
    assert (len(first.times), len(second.times)) == (3, 0)


@both
def test_nobody_rests_where_there_will_be_drafts(
    make_engine: MakeEngine, asynchronous: bool
) -> None:
    class Waking(Resting):
        def drafts_next(self) -> bool:
            return len(self.views) == 3

        def rest(self) -> int:
            return super().rest() if len(self.views) == 3 else 0

    answer, planner = list(range(100, 120)), Waking(1000)
    engine = drafting_engine(make_engine, [10], answer, planner, asynchronous=asynchronous)
    done, _ = run(engine, [10], golden_token_ids=answer, max_tokens=20)
    assert list(done.token_ids) == answer
    assert [views[0].drafts for views in planner.views[:4]] == [0, 0, 0, 5]
    assert done.usage.accepted_tokens == 5


def test_nobody_rests_where_there_are_drafts(make_engine: MakeEngine) -> None:
    class Tired(Resting):
        def drafts_next(self) -> bool:
            return not self.views

    answer, planner = list(range(100, 112)), Tired(1000)
    engine = drafting_engine(make_engine, [10], answer, planner, asynchronous=False)
    done, _ = run(engine, [10], golden_token_ids=answer, max_tokens=12)
    # The first step verifies what came behind the prompt, and nothing comes behind it.
    assert [views[0].drafts for views in planner.views] == [5, 0]
    assert done.usage.accepted_tokens == 5
