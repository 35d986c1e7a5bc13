"""Rules of drawing in the step loop: penalties, bias, bans, and several samples of a request."""

from collections.abc import Callable
from typing import Any

import pytest
from deepinfer_core.engine.admission import Rules, admit
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.outputs import Completion
from deepinfer_core.engine.rows import RowRequest, RowResult
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.tokenizer import Tokenizer
from deepinfer_core.errors import RequestError
from deepinfer_core.testing.fake_runner import FakeRunner

MakeEngine = Callable[..., Engine]
EOS = 1


class Recorder(FakeRunner):
    """Remembers the rows that were asked for, by position."""

    def __init__(self) -> None:
        super().__init__(265, 4)
        self.rows: dict[tuple[int, int], RowRequest] = {}

    def draw(
        self, rows: tuple[RowRequest, ...], histories: list[tuple[int, ...]]
    ) -> tuple[RowResult, ...]:
        self.rows |= {(row.settings.seed, row.position): row for row in rows}
        return super().draw(rows, histories)


def drain(engine: Engine) -> dict[tuple[int, int], Completion]:
    ended = {}
    while len(engine.batch):
        for update in engine.step():
            if update.delta.completion is not None:
                ended[update.delta.index, update.delta.sample] = update.delta.completion
    engine.check_integrity()
    return ended


def run(engine: Engine, prompt: list[int], **fields: Any) -> Completion:
    engine.submit(0, prompt, SamplingParams(**{"seed": 0, **fields}))
    return drain(engine)[0, 0]


def rows_of(make_engine: MakeEngine, prompt: list[int], **fields: Any) -> list[RowRequest]:
    runner = Recorder()
    run(make_engine(runner=runner, eos_ids=frozenset({EOS})), prompt, **fields)
    return [runner.rows[0, position] for position in sorted(place for _, place in runner.rows)]


def test_penalties_know_the_tokens_before_their_row(make_engine: MakeEngine) -> None:
    golden = {"golden_token_ids": [20, 21, 20], "max_tokens": 3}
    rows = rows_of(make_engine, [10, 20], repetition_penalty=1.5, **golden)
    assert [sorted(row.seen) for row in rows] == [
        [(10, 0), (20, 0)],
        [(10, 0), (20, 1)],
        [(10, 0), (20, 1), (21, 1)],
    ]
    assert {row.settings.repetition_penalty for row in rows} == {1.5}


@pytest.mark.parametrize("name", ["frequency_penalty", "presence_penalty"])
def test_penalties_of_the_output_do_not_know_the_prompt(make_engine: MakeEngine, name: str) -> None:
    golden = {"golden_token_ids": [20, 20, 21], "max_tokens": 3}
    rows = rows_of(make_engine, [10, 20], **{name: 0.5}, **golden)
    assert [row.seen for row in rows] == [(), ((20, 1),), ((20, 2),)]
    assert {getattr(row.settings, name) for row in rows} == {0.5}


def test_a_request_without_penalties_lists_no_tokens(make_engine: MakeEngine) -> None:
    assert [row.seen for row in rows_of(make_engine, [10], max_tokens=2)] == [(), ()]


def test_bias_and_allowed_tokens_reach_every_row(make_engine: MakeEngine) -> None:
    fields = {"logit_bias": {30: 1, 20: -5}, "allowed_token_ids": [20, 30], "max_tokens": 3}
    rows = rows_of(make_engine, [10], **fields)
    assert {row.settings.bias for row in rows} == {((20, -5.0), (30, 1.0))}
    assert {row.settings.allowed for row in rows} == {(20, 30)}


def test_rows_that_score_the_prompt_are_under_no_rules(make_engine: MakeEngine) -> None:
    rules = {"repetition_penalty": 2, "logit_bias": {3: 1}, "allowed_token_ids": [3]}
    first, *_ = rows_of(make_engine, [10, 11], prompt_logprobs=True, max_tokens=1, **rules)
    assert (first.forced, first.settings.bias, first.settings.allowed, first.seen) == (
        11,
        (),
        None,
        (),
    )
    assert first.settings.repetition_penalty == 1


def test_a_bad_sequence_bans_its_last_token_behind_the_others(make_engine: MakeEngine) -> None:
    fields = {"golden_token_ids": [20, 21, 20], "max_tokens": 4, "bad_words_ids": [[20, 21], [7]]}
    rows = rows_of(make_engine, [20], **fields)
    # The prompt ends with 20 too, but it was not drawn.
    assert [row.banned for row in rows] == [(7,), (7, 21), (7,), (7, 21)]


def test_a_bad_word_is_looked_for_with_a_blank_before_it_and_without(
    make_engine: MakeEngine, tokenizer: Tokenizer
) -> None:
    blank, a, b = tokenizer.encode(" ab")
    for word in ("ab", " ab"):
        fields = {"golden_token_ids": [a, blank, a, b], "max_tokens": 5, "bad_words": word}
        rows = rows_of(make_engine, [10], **fields)
        assert [row.banned for row in rows] == [(), (b,), (), (b,), ()]


@pytest.mark.parametrize("word", ["cat", " cat"])
def test_each_word_has_the_tokens_of_both_spellings(word: str) -> None:
    spellings = {"cat": [3, 4], " cat": [5]}
    params = SamplingParams(bad_words=word, bad_words_ids=[[9, 9]])
    rules = Rules(vocabulary=10, max_model_tokens=64)
    request = admit(rules, 0, [1], params, 0.0, int, encode=spellings.__getitem__)
    assert request.bad_sequences == ((9, 9), (3, 4), (5,))


def test_a_bad_word_is_never_written(make_engine: MakeEngine, tokenizer: Tokenizer) -> None:
    fields = {"allowed_token_ids": tokenizer.encode("ab"), "max_tokens": 40}
    assert "aa" in run(make_engine(), [10], **fields).text
    done = run(make_engine(), [10], bad_words="aa", **fields)
    assert "aa" not in done.text
    assert set(done.text) == {"a", "b"}


def test_bad_words_need_a_tokenizer(make_engine: MakeEngine) -> None:
    with pytest.raises(RequestError, match="no tokenizer") as caught:
        make_engine(has_text=False).submit(0, [10], SamplingParams(bad_words="a"))
    assert caught.value.hint == "use bad_words_ids"


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"logit_bias": {265: 1}}, "logit_bias"),
        ({"allowed_token_ids": [3, 265]}, "allowed_token_ids"),
        ({"bad_words_ids": [[3], [4, 265]]}, r"bad_words_ids\[1\]"),
    ],
)
def test_ids_outside_the_vocabulary_are_refused(
    make_engine: MakeEngine, fields: dict[str, Any], name: str
) -> None:
    engine = make_engine()
    with pytest.raises(RequestError, match=f"of {name} is 265") as caught:
        engine.submit(0, [10], SamplingParams(**fields))
    assert caught.value.hint == "token ids of this model are integers from 0 to 264"
    assert len(engine.batch) == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"allowed_token_ids": [EOS], "min_tokens": 1},
        {"allowed_token_ids": [7, 8], "bad_words_ids": [[7], [8]]},
        {"bad_words_ids": [[token] for token in range(265)]},
    ],
)
def test_a_request_that_bans_every_token_fails_alone(
    make_engine: MakeEngine, fields: dict[str, Any]
) -> None:
    engine = make_engine(eos_ids=frozenset({EOS}))
    alone = run(make_engine(eos_ids=frozenset({EOS})), [11], max_tokens=3)
    engine.submit(0, [10], SamplingParams(**fields))
    engine.submit(1, [11], SamplingParams(seed=0, max_tokens=3))
    ended = drain(engine)
    error = ended[0, 0].error
    assert isinstance(error, RequestError)
    assert error.message == "no token may be drawn at position 1"
    assert error.hint is not None
    assert "allowed_token_ids" in error.hint
    assert ended[1, 0].token_ids == alone.token_ids


def test_bans_that_leave_nothing_later_keep_what_was_drawn(make_engine: MakeEngine) -> None:
    done = run(make_engine(), [10], allowed_token_ids=[7], bad_words_ids=[[7, 7, 7]], max_tokens=9)
    assert (done.token_ids, done.finish_reason) == ((7, 7), "error")
    assert done.error is not None
    assert done.error.message == "no token may be drawn at position 3"


def test_preemption_changes_nothing_that_the_rules_see(make_engine: MakeEngine) -> None:
    fields = {"repetition_penalty": 1.2, "frequency_penalty": 0.1, "max_tokens": 12}
    fields |= {"bad_words_ids": [[20, 21]], "allowed_token_ids": range(18, 24)}
    found = []
    for blocks in (64, 6):
        runner = Recorder()
        engine = make_engine(runner=runner, blocks=blocks)
        for index in range(3):
            engine.submit(index, [10 + index] * 3, SamplingParams(seed=index, **fields))
        ended = drain(engine)
        rules = {
            place: (sorted(row.seen), row.banned, row.settings.allowed)
            for place, row in runner.rows.items()
        }
        found.append((rules, {place: done.token_ids for place, done in ended.items()}))
        assert (engine.batch.preemptions > 0) == (blocks == 6)
    assert found[0] == found[1]


def test_samples_of_a_seed_have_seeds_of_their_own_and_report_them(make_engine: MakeEngine) -> None:
    engine = make_engine()
    for sample in range(3):
        engine.submit(4, [10], SamplingParams(n=3, seed=7), sample=sample)
    ended = drain(engine)
    assert sorted(ended) == [(4, 0), (4, 1), (4, 2)]
    assert ended[4, 0].seed == 7
    assert len({done.seed for done in ended.values()}) == 3
    for done in ended.values():
        again = run(make_engine(), [10], seed=done.seed)
        assert again.token_ids == done.token_ids
