"""The step loop: ends, errors, log-probabilities and independence of requests."""

from collections.abc import Callable
from typing import Any

import pytest
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.outputs import Completion, Delta
from deepinfer_core.engine.rows import RowRequest, RowResult
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.tokenizer import Tokenizer
from deepinfer_core.errors import DeviceError, EngineError, RequestError
from deepinfer_core.schedule.plan import StepPlan
from deepinfer_core.testing.fake_runner import FakeRunner

MakeEngine = Callable[..., Engine]
EOS = 1


def drain(engine: Engine) -> tuple[dict[int, Completion], list[Delta]]:
    ended, deltas = {}, []
    while len(engine.batch):
        for update in engine.step():
            deltas.append(update.delta)
            if update.delta.completion is not None:
                ended[update.delta.index] = update.delta.completion
    engine.check_integrity()
    return ended, deltas


def run(engine: Engine, prompt: list[int], **fields: Any) -> Completion:
    engine.submit(0, prompt, SamplingParams(**{"seed": 0, **fields}))
    return drain(engine)[0][0]


def spelled(tokenizer: Tokenizer, text: str, **fields: Any) -> dict[str, Any]:
    """Parameters that make the model write this text."""
    ids = tokenizer.encode(text)
    return {"golden_token_ids": ids, "max_tokens": len(ids), **fields}


@pytest.mark.parametrize("most", [1, 2, 5])
def test_max_tokens_ends_a_request_by_length(make_engine: MakeEngine, most: int) -> None:
    done = run(make_engine(), [10, 11], max_tokens=most)
    assert (len(done.token_ids), done.finish_reason) == (most, "length")
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (2, most)


@pytest.mark.parametrize("length", [1, 62, 63])
def test_the_longest_sequence_ends_a_request_by_length(
    make_engine: MakeEngine, length: int
) -> None:
    done = run(make_engine(longest=64), [10] * length, max_tokens=1000)
    assert (len(done.token_ids), done.finish_reason) == (64 - length, "length")


def test_the_end_token_ends_a_request_and_is_no_text(make_engine: MakeEngine) -> None:
    fields = {"golden_token_ids": [9 + 65, EOS, 9 + 66], "max_tokens": 3}
    done = run(make_engine(eos_ids=frozenset({EOS})), [10], skip_special_tokens=False, **fields)
    assert (done.text, done.token_ids, done.finish_reason) == ("A", (74, EOS), "stop")


def test_the_end_token_can_be_ignored(make_engine: MakeEngine) -> None:
    fields = {"golden_token_ids": [9 + 65, EOS, 9 + 66], "max_tokens": 3}
    done = run(make_engine(eos_ids=frozenset({EOS})), [10], ignore_eos=True, **fields)
    assert (done.text, done.finish_reason) == ("AB", "length")


def test_a_stop_token_ends_a_request(make_engine: MakeEngine, tokenizer: Tokenizer) -> None:
    fields = spelled(tokenizer, "abc", stop_token_ids=tokenizer.encode("b"))
    assert run(make_engine(), [10], **fields).text == "a"
    kept = run(make_engine(), [10], include_stop_str_in_output=True, **fields)
    assert (kept.text, kept.finish_reason) == ("ab", "stop")


def test_a_stop_string_across_tokens_ends_a_request(
    make_engine: MakeEngine, tokenizer: Tokenizer
) -> None:
    done = run(make_engine(), [10], **spelled(tokenizer, "one two three", stop=" two"))
    assert (done.text, done.finish_reason) == ("one", "stop")
    assert tokenizer.decode(done.token_ids) == "one two"


def test_a_stop_at_the_last_allowed_token_is_a_stop(
    make_engine: MakeEngine, tokenizer: Tokenizer
) -> None:
    assert run(make_engine(), [10], **spelled(tokenizer, "abc", stop="c")).finish_reason == "stop"


def test_stop_strings_are_not_looked_for_before_min_tokens(
    make_engine: MakeEngine, tokenizer: Tokenizer
) -> None:
    done = run(make_engine(), [10], **spelled(tokenizer, "ababab", stop="ab", min_tokens=3))
    assert done.text == "abab"


def test_deltas_join_to_the_completion(make_engine: MakeEngine, tokenizer: Tokenizer) -> None:
    engine = make_engine()
    engine.submit(
        0, [10], SamplingParams(logprobs=1, **spelled(tokenizer, "é世 stXop", stop="sto"))
    )
    ended, deltas = drain(engine)
    assert "".join(delta.text for delta in deltas) == ended[0].text == "é世 stXop"
    assert sum((delta.token_ids for delta in deltas), ()) == ended[0].token_ids
    assert sum((delta.logprobs for delta in deltas), ()) == ended[0].logprobs


def test_a_delta_never_holds_text_of_a_stop_string(
    make_engine: MakeEngine, tokenizer: Tokenizer
) -> None:
    engine = make_engine()
    engine.submit(0, [10], SamplingParams(**spelled(tokenizer, "see STOP", stop="STOP")))
    _, deltas = drain(engine)
    assert "".join(delta.text for delta in deltas) == "see "


def test_neither_end_nor_stop_token_is_drawn_before_min_tokens(make_engine: MakeEngine) -> None:
    seen: list[tuple[RowRequest, ...]] = []
    engine = make_engine(runner=Recorder(seen), eos_ids=frozenset({EOS}))
    run(engine, [10], min_tokens=2, max_tokens=3, stop_token_ids=[7])
    assert [rows[0].banned for rows in seen] == [(1, 7), (1, 7), ()]


def test_the_first_tokens_can_be_kept_from_being_the_end(make_engine: MakeEngine) -> None:
    seen: list[tuple[RowRequest, ...]] = []
    engine = make_engine(runner=Recorder(seen), eos_ids=frozenset({EOS}), banned_ids=(5,))
    run(engine, [10], first_n_token_no_eos=1, max_tokens=2, stop_token_ids=[7])
    assert [rows[0].banned for rows in seen] == [(1, 5), (5,)]


class Recorder(FakeRunner):
    """Remembers what was asked for."""

    def __init__(self, seen: list[tuple[RowRequest, ...]]) -> None:
        super().__init__(265, 4)
        self.seen = seen

    def draw(
        self, rows: tuple[RowRequest, ...], histories: list[tuple[int, ...]]
    ) -> tuple[RowResult, ...]:
        self.seen.append(rows)
        return super().draw(rows, histories)


def test_a_draw_is_keyed_by_the_position_of_the_drawn_token(make_engine: MakeEngine) -> None:
    seen: list[tuple[RowRequest, ...]] = []
    run(make_engine(runner=Recorder(seen)), [10, 11, 12], max_tokens=2, seed=9)
    assert [(rows[0].position, rows[0].settings.seed) for rows in seen] == [(3, 9), (4, 9)]


def test_requests_without_a_seed_get_different_ones(make_engine: MakeEngine) -> None:
    engine = make_engine()
    params = SamplingParams()
    for index in range(3):
        engine.submit(index, [10], params)
    ended, _ = drain(engine)
    assert len({done.seed for done in ended.values()}) == 3
    assert len({done.token_ids for done in ended.values()}) == 3


def test_an_engine_s_seed_repeats_the_seeds_of_its_requests(make_engine: MakeEngine) -> None:
    def seeds(seed: int) -> list[int]:
        engine = make_engine(seed=seed)
        return [run(engine, [10], seed=None).seed for _ in range(2)]

    assert seeds(3) == seeds(3) != seeds(4)
    assert len(set(seeds(3))) == 2


def test_the_reported_seed_gives_the_same_tokens_again(make_engine: MakeEngine) -> None:
    first = run(make_engine(), [10], seed=None)
    assert run(make_engine(), [10], seed=first.seed).token_ids == first.token_ids


@pytest.mark.parametrize("rows", [4, 5, 7, 16])
def test_prompt_logprobs_have_an_entry_for_each_token_but_the_first(
    make_engine: MakeEngine, rows: int
) -> None:
    prompt = [10, 20, 30, 40, 50, 60, 70, 80, 90]
    done = run(make_engine(rows=rows), prompt, prompt_logprobs=2)
    assert done.prompt_logprobs is not None
    first, *others = done.prompt_logprobs
    assert first is None
    assert [entry.token_id for entry in others if entry is not None] == prompt[1:]
    assert all(entry is not None and len(entry.top) == 2 for entry in others)


def test_a_prompt_of_one_token_has_no_scores(make_engine: MakeEngine) -> None:
    assert run(make_engine(), [10], prompt_logprobs=True).prompt_logprobs == (None,)


def test_logprobs_are_given_only_when_asked_for(make_engine: MakeEngine) -> None:
    silent = run(make_engine(), [10], max_tokens=3)
    assert (silent.logprobs, silent.prompt_logprobs) == (None, None)
    done = run(make_engine(), [10], max_tokens=3, logprobs=2)
    assert done.logprobs is not None
    assert [entry.token_id for entry in done.logprobs] == list(done.token_ids)
    assert [len(entry.top) for entry in done.logprobs] == [2, 2, 2]


def test_golden_tokens_are_emitted_and_drawing_goes_on_behind_them(
    make_engine: MakeEngine,
) -> None:
    done = run(make_engine(), [10], golden_token_ids=[20, 30], max_tokens=3)
    assert done.token_ids[:2] == (20, 30)
    again = run(make_engine(), [10, 20, 30], max_tokens=1)
    assert done.token_ids[2:] == again.token_ids


@pytest.mark.parametrize(
    ("prompt", "fields", "message"),
    [
        ([], {}, "the prompt is empty"),
        ([10] * 64, {}, "64 tokens, the engine holds 64"),
        ([10, 265], {}, "token 1 of prompt is 265"),
        ([-1], {}, "token 0 of prompt is -1"),
        ([True], {}, "token 0 of prompt is True"),
        (["a"], {}, "token 0 of prompt is 'a'"),
        ([10], {"stop_token_ids": [265]}, "stop_token_ids is 265"),
        ([10], {"golden_token_ids": [0, 300]}, "token 1 of golden_token_ids is 300"),
    ],
)
def test_a_bad_request_is_refused_and_leaves_the_engine_untouched(
    make_engine: MakeEngine, prompt: list[Any], fields: dict[str, Any], message: str
) -> None:
    engine = make_engine()
    with pytest.raises(RequestError, match=message):
        engine.submit(0, prompt, SamplingParams(**fields))
    assert len(engine.batch) == 0


def test_stop_strings_need_a_tokenizer(make_engine: MakeEngine) -> None:
    with pytest.raises(RequestError, match=r"no tokenizer\.json"):
        make_engine(has_text=False).submit(0, [10], SamplingParams(stop="a"))


def test_invalid_logits_end_one_request_and_no_other(make_engine: MakeEngine) -> None:
    class Poisoned(FakeRunner):
        def draw(
            self, rows: tuple[RowRequest, ...], histories: list[tuple[int, ...]]
        ) -> tuple[RowResult, ...]:
            results = super().draw(rows, histories)
            bad = RowResult(token_id=0, logprob=0.0, processed_logprob=0.0, invalid=True)
            return tuple(
                bad if row.settings.seed == 13 else one
                for row, one in zip(rows, results, strict=True)
            )

    engine = make_engine(runner=Poisoned(265, 4))
    for index, seed in enumerate([1, 13, 2]):
        engine.submit(index, [10], SamplingParams(seed=seed, max_tokens=3))
    ended, _ = drain(engine)
    assert [ended[i].finish_reason for i in range(3)] == ["length", "error", "length"]
    assert isinstance(ended[1].error, EngineError)
    assert ended[0].token_ids == run(make_engine(), [10], seed=1, max_tokens=3).token_ids


def test_several_invalid_rows_of_a_request_end_it_once(make_engine: MakeEngine) -> None:
    class Blind(FakeRunner):
        def draw(
            self, rows: tuple[RowRequest, ...], histories: list[tuple[int, ...]]
        ) -> tuple[RowResult, ...]:
            bad = RowResult(token_id=0, logprob=0.0, processed_logprob=0.0, invalid=True)
            return (bad,) * len(rows)

    engine = make_engine(runner=Blind(265, 4), asynchronous=False)
    engine.submit(0, [10] * 5, SamplingParams(prompt_logprobs=True))
    [update] = engine.step()
    assert update.delta.completion is not None
    assert update.delta.completion.finish_reason == "error"


def test_a_failing_step_ends_its_own_requests_only(make_engine: MakeEngine) -> None:
    calls = []

    def fail_once(plan: StepPlan) -> None:
        calls.append(plan)
        if len(calls) == 1:
            raise RuntimeError("device on fire\nsecond line")

    engine = make_engine(runner=FakeRunner(265, 4, fail_once), sequences=1)
    for index in range(2):
        engine.submit(index, [10], SamplingParams(seed=1, max_tokens=2))
    ended, _ = drain(engine)
    assert ended[0].finish_reason == "error"
    assert "RuntimeError: device on fire second line" in str(ended[0].error)
    assert ended[1].finish_reason == "length"


def test_an_error_of_our_own_keeps_its_kind(make_engine: MakeEngine) -> None:
    def fail(plan: StepPlan) -> None:
        raise DeviceError("no memory")

    done = run(make_engine(runner=FakeRunner(265, 4, fail)), [10])
    assert isinstance(done.error, DeviceError)


def test_an_aborted_request_reports_what_it_had(make_engine: MakeEngine) -> None:
    engine = make_engine(asynchronous=False)
    number = engine.submit(0, [10], SamplingParams(seed=1, max_tokens=9))
    engine.step()
    update = engine.abort(number)
    assert update is not None
    assert update.delta.completion is not None
    assert update.delta.completion.finish_reason == "abort"
    assert len(update.delta.completion.token_ids) == 1
    assert engine.abort(number) is None
    engine.check_integrity()


def test_an_interrupt_within_a_step_leaves_an_engine_that_works(make_engine: MakeEngine) -> None:
    calls = []

    def interrupt_once(plan: StepPlan) -> None:
        calls.append(plan)
        if len(calls) == 2:
            raise KeyboardInterrupt

    engine = make_engine(runner=FakeRunner(265, 4, interrupt_once))
    engine.submit(0, [10], SamplingParams(seed=1, max_tokens=9))
    engine.step()
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    engine.reset()
    engine.check_integrity()
    assert run(engine, [10], seed=1).token_ids == run(make_engine(), [10], seed=1).token_ids


def test_durations_are_counted_from_arrival(tokenizer: Tokenizer, make_engine: MakeEngine) -> None:
    engine = make_engine(asynchronous=False)
    now = [100.0]
    engine.clock_s = lambda: now[0]
    engine.load_s = 2.5
    engine.submit(0, [10] * 20, SamplingParams(max_tokens=2))
    now[0] = 101.0
    engine.step()
    now[0] = 102.0
    engine.step()
    now[0] = 104.0
    [update] = engine.step()
    assert update.delta.completion is not None
    timings = update.delta.completion.timings_s
    assert (timings.load, timings.first_token, timings.total) == (2.5, 2.0, 4.0)


def test_a_step_without_work_does_nothing(make_engine: MakeEngine) -> None:
    assert make_engine().step() == []
