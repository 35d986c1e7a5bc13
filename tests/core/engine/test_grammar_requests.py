"""What becomes of requests with a grammar in an engine: each alone, whatever the others do?

The model is random and its tokens are bytes; the component is the slow and obvious one of
``testing.letter_grammar``, compiled in real child processes.
"""

import json
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deepinfer_core.engine.grammar_advice import how_to_get_grammars
from deepinfer_core.engine.grammar_limits import PoolLimits
from deepinfer_core.engine.grammar_masks import Grammars
from deepinfer_core.engine.grammar_pool import GrammarPool
from deepinfer_core.engine.grammar_vocabulary import grammar_vocabulary
from deepinfer_core.errors import RequestError, UnsupportedGrammar
from deepinfer_core.plugin import BuildContext, ComponentSpec, ModelNeeds, Resolved
from deepinfer_core.plugin.resolved import Pick

from deepinfer_core import LLM, RequestOptions, SamplingParams

TEXTS = ["yes", "no", "yes!", "abcdefgh" * 4]


def resolved() -> Resolved:
    spec = ComponentSpec(
        kind="grammar",
        name="test.letters",
        slots=("grammar",),
        contract=1,
        factory="deepinfer_core.testing.letter_grammar:build",
    )
    pick = Pick(kind="grammar", slot="grammar", spec=spec, settings={}, distribution="test")
    context = BuildContext(device="cpu", needs=ModelNeeds())
    return Resolved(context=context, picks=(pick,), distributions=())


@pytest.fixture(scope="module", params=[True, False], ids=["asynchronous", "lockstep"])
def llm(byte_checkpoint: Path, request: pytest.FixtureRequest) -> Iterator[LLM]:
    with LLM(byte_checkpoint, asynchronous=request.param, num_blocks=24) as llm:
        llm.engine.grammars = grammars_of(llm, 10.0)
        yield llm


def grammars_of(llm: LLM, timeout_s: float) -> Grammars:
    end = llm.loaded.config.eos_token_id
    size = llm.loaded.config.text_config.vocab_size
    vocabulary = grammar_vocabulary(llm.tokenizer, end_ids=[end], size=size)
    limits = PoolLimits(workers=2, timeout_s=timeout_s)
    pool = GrammarPool(resolved(), vocabulary, limits, llm.engine.instruments)
    return Grammars(pool, frozenset({end}))


@pytest.fixture
def patient(llm: LLM) -> Iterator[LLM]:
    """The same with a limit that no test waits for."""
    wait_until(lambda: not compiling(llm))  # both count in one place
    usual, llm.engine.grammars = llm.engine.grammars, grammars_of(llm, 600.0)
    yield llm
    llm.engine.grammars.close()
    llm.engine.grammars = usual


def asked(*texts: str, **more: object) -> SamplingParams:
    grammar = {"kind": "choice", "grammar": list(texts), **more.pop("grammar", {})}  # type: ignore[dict-item]
    return SamplingParams(**{"max_tokens": 64, "seed": 7, "grammar": grammar, **more})  # type: ignore[arg-type]


def test_every_answer_is_one_of_the_texts(llm: LLM) -> None:
    answers = llm.generate(["a", "b"], asked(*TEXTS, n=8))
    assert {answer.finish_reason for answer in answers} == {"stop"}
    assert {answer.text for answer in answers} <= set(TEXTS)
    assert len({answer.text for answer in answers}) > 1


def test_a_request_without_a_grammar_is_as_ever(llm: LLM) -> None:
    plain = SamplingParams(max_tokens=12, seed=3)
    alone = llm.generate("a", plain)[0]
    beside = llm.generate(["a", "b"], [plain, asked(*TEXTS)])
    assert beside[0].token_ids == alone.token_ids
    assert beside[1].text in TEXTS


def test_tokens_do_not_depend_on_neighbours(llm: LLM) -> None:
    alone = llm.generate("a", asked(*TEXTS))[0]
    others = [asked("x" * count, seed=count) for count in range(1, 8)]
    together = llm.generate(["a", *"bcdefgh"], [asked(*TEXTS), *others])
    assert together[0].token_ids == alone.token_ids


def test_a_text_that_is_cut_says_so(llm: LLM) -> None:
    [answer] = llm.generate("a", asked("x" * 40, max_tokens=10))
    assert (answer.text, answer.finish_reason) == ("x" * 10, "length")


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("!fault", "at character 3"),
        ("!break", "a bug"),
        ("!abort", "process"),
        ("!sleep50", "10 s"),
    ],
)
def test_a_grammar_that_fails_fails_its_request_alone(llm: LLM, first: str, message: str) -> None:
    good, bad = asked(*TEXTS), asked(first, "x")
    answers = llm.generate(["a", "b", "c"], [good, bad, SamplingParams(max_tokens=5, seed=1)])
    assert answers[0].text in TEXTS
    assert answers[1].finish_reason == "error"
    assert message in str(answers[1].error)
    assert answers[2].finish_reason == "length"


def test_a_request_is_not_held_up_by_slow_grammars_of_others(llm: LLM) -> None:
    heap = [asked(f"!sleep600.{number}", "x") for number in range(6)]
    quick = asked("a new one", "another")
    deltas = llm.stream(["a"] * 7, [*heap, quick])
    ended = [delta for delta in deltas if delta.completion is not None]
    assert ended[0].index == 6
    assert ended[0].completion is not None
    assert ended[0].completion.text in ("a new one", "another")
    assert {delta.completion.finish_reason for delta in ended[1:] if delta.completion} == {"error"}


def compiling(llm: LLM) -> bool:
    return bool(llm.metrics.get_sample_value("deepinfer_grammars", {"state": "compiling"}))


def wait_until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 30.0
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.01)


@pytest.mark.parametrize("how", ["abort", "close", "deadline", "interrupt"])
def test_a_request_that_ends_before_its_grammar_is_there_gives_it_up(
    patient: LLM, how: str
) -> None:
    slow = asked("!sleep600", how)
    beside = SamplingParams(max_tokens=20, seed=1, ignore_eos=True)
    options = RequestOptions(timeout_s=0.5 if how == "deadline" else None)
    deltas = patient.stream(["a", "b"], [slow, beside], options=[options, RequestOptions()])
    assert next(deltas).index == 1
    wait_until(lambda: compiling(patient))
    if how == "abort":
        deltas.abort(0)
    if how == "close":
        deltas.close()
    if how == "interrupt":
        patient.engine.reset()
        wait_until(lambda: not compiling(patient))
        return
    ended = {delta.index: delta.completion for delta in deltas if delta.completion is not None}
    wait_until(lambda: not compiling(patient))
    if how != "close":
        assert ended[0].finish_reason == {"abort": "abort", "deadline": "error"}[how]
        assert ended[1].finish_reason == "length"


def test_samples_of_one_request_wait_for_one_grammar(llm: LLM) -> None:
    before = llm.metrics.get_sample_value("deepinfer_grammar_compile_seconds_count")
    answers = llm.generate("a", asked("one of", "two of", n=4))
    assert {answer.text for answer in answers} <= {"one of", "two of"}
    after = llm.metrics.get_sample_value("deepinfer_grammar_compile_seconds_count")
    assert before is not None
    assert after == before + 1


def test_a_grammar_that_failed_fails_at_once_when_asked_again(llm: LLM) -> None:
    first = llm.generate("a", asked("!fault", "again"))[0]
    hits = llm.metrics.get_sample_value("deepinfer_grammar_cache_hits_total")
    second = llm.generate("a", asked("!fault", "again"))[0]
    assert hits is not None
    assert llm.metrics.get_sample_value("deepinfer_grammar_cache_hits_total") == hits + 1
    assert str(first.error) == str(second.error)
    assert first.error is not second.error
    assert second.error is not None
    assert second.error.code == "unsupported_grammar"


def test_others_run_while_a_grammar_is_compiled(patient: LLM) -> None:
    slow = asked("!sleep600", "x")
    deltas = patient.stream(["a", "b"], [slow, SamplingParams(max_tokens=20, seed=1)])
    ended = next(delta for delta in deltas if delta.completion is not None)
    assert ended.index == 1
    deltas.close()


def test_a_text_starts_behind_its_trigger(llm: LLM) -> None:
    [bound, *trigger] = llm.tokenizer.encode("uqz")
    where = {"trigger_token_ids": trigger, "bound_token_id": bound}
    params = asked("yes", grammar=where, max_tokens=200, logit_bias={bound: 4.0}, n=4)
    answers = llm.generate("a", params)
    ended = [answer.text for answer in answers if answer.finish_reason == "stop"]
    assert ended
    assert all(text.endswith("uqzyes") for text in ended)


def test_a_request_that_lost_its_blocks_goes_on_where_it_was(llm: LLM) -> None:
    text = "abcdefgh" * 30
    prompts = [f"{letter}" * 200 for letter in "abcdefghij"]
    before = llm.engine.batch.preemptions
    answers = llm.generate(prompts, asked(text, max_tokens=400))
    assert [answer.text for answer in answers] == [text] * len(prompts)
    assert llm.engine.batch.preemptions > before, "too many blocks for the test to mean anything"


def test_published_words_mean_the_same(llm: LLM) -> None:
    with pytest.raises(RequestError, match="schema_type"):
        SamplingParams(so_args={"schema_type": "xml", "schema": "x"})
    with pytest.raises(RequestError, match="'serialized'"):
        SamplingParams(so_args={"schema_type": "regex", "schema": "x", "serialized": 1})
    params = SamplingParams(
        so_args={"schema_type": "json", "schema": "{}", "trigger_token_ids": [[5, 6]]}
    )
    assert params.grammar_request is not None
    assert params.grammar_request.kind == "json_schema"
    assert params.grammar_request.trigger_ids == (5, 6)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"schema_type": ["regex"]}, "schema_type"),
        ({"trigger_token_ids": [[5], [6]]}, "2 triggers"),
        ({"trigger_token_ids": [[5], [6]], "bound_token_id": 7}, "2 triggers"),
    ],
)
def test_published_words_that_cannot_be_followed_are_refused(
    more: dict[str, object], message: str
) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        SamplingParams(so_args={"schema_type": "regex", "schema": "a+", **more})
    assert caught.value.hint


def test_a_kind_that_nobody_takes_is_refused(llm: LLM) -> None:
    [answer] = llm.generate("a", SamplingParams(grammar={"kind": "regex", "grammar": "a"}))
    assert isinstance(answer.error, UnsupportedGrammar)
    assert "found a component without it" in str(answer.error)


@pytest.mark.parametrize(
    "more",
    [
        {"ignore_eos": True},
        {"min_tokens": 1},
        {"first_n_token_no_eos": 1},
        {"golden_token_ids": [5]},
    ],
)
def test_what_goes_against_a_grammar_is_refused(more: dict[str, object]) -> None:
    with pytest.raises(RequestError, match="together"):
        asked("x", **more)


def test_without_a_component_the_error_says_what_to_do_here(byte_checkpoint: Path) -> None:
    is_installed = bool([*metadata.entry_points(group="deepinfer.plugins.v1", name="grammar")])
    with LLM(byte_checkpoint) as llm:
        [answer] = llm.generate("a", asked("x"))
    assert isinstance(answer.error, UnsupportedGrammar)
    assert 'set components.grammar.use to "auto"' in answer.error.hint
    assert ("install deepinfer-grammar" in answer.error.hint) != is_installed


def report(*components: str, plugins: tuple[str, ...] = ()) -> Any:
    rows = [
        SimpleNamespace(candidate=SimpleNamespace(spec=SimpleNamespace(name=name)))
        for name in components
    ]
    found = [SimpleNamespace(plugin=SimpleNamespace(distribution=name)) for name in plugins]
    slots = [
        SimpleNamespace(wish=SimpleNamespace(slot=slot), rows=rows) for slot in ("x", "grammar")
    ]
    return SimpleNamespace(slots=slots, plugins=found)


LINE = 'set components.grammar.use to "auto"'


@pytest.mark.parametrize(
    ("components", "plugins", "said"),
    [
        ((), ("other",), f"install deepinfer-grammar, which offers one, and {LINE}"),
        (
            ("grammar.xgrammar", "y.mine"),
            ("deepinfer-grammar",),
            f"{LINE}, which takes one of those that are installed: grammar.xgrammar, y.mine",
        ),
        (
            (),
            ("deepinfer-grammar",),
            "deepinfer-grammar is installed and was not loaded; deepinfer plugins says why",
        ),
    ],
)
def test_nobody_is_told_to_install_what_is_installed(
    components: tuple[str, ...], plugins: tuple[str, ...], said: str
) -> None:
    assert how_to_get_grammars(report(*components, plugins=plugins)) == said


def test_a_mapping_is_a_request(llm: LLM) -> None:
    with pytest.raises(RequestError, match="'colour'"):
        SamplingParams(grammar={"kind": "regex", "colour": 1})
    params = SamplingParams(grammar={"kind": "json_schema", "grammar": {"type": "null"}})
    assert params.grammar_request is not None
    assert json.loads(params.grammar_request.text.text) == {"type": "null"}
