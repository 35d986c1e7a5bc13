"""The Python API over a real model: order, errors, streams, scores."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from deepinfer_core.engine.draft_rounds import draft_rounds
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.scoring import bits_per_byte, logits, score_documents
from deepinfer_core.errors import (
    ConfigError,
    EngineError,
    NotSupported,
    RequestError,
    WeightsError,
)
from deepinfer_core.telemetry.progress import (
    PhaseFinished,
    PhaseStarted,
    ProgressEvent,
    ProgressStream,
)
from deepinfer_core.testing.byte_checkpoint import make_byte_checkpoint

import deepinfer_core

MakeLLM = Callable[..., LLM]
GREEDY = SamplingParams(temperature=0, max_tokens=5)


def test_the_package_offers_the_names_of_the_api() -> None:
    assert deepinfer_core.LLM is LLM
    assert deepinfer_core.SamplingParams is SamplingParams


def test_results_have_the_order_of_the_prompts(llm: LLM) -> None:
    lengths = [6, 1, 4, 2, 5, 3, 7]
    params = [SamplingParams(max_tokens=n, ignore_eos=True) for n in lengths]
    done = llm.generate([f"prompt {n}" for n in lengths], params)
    assert [one.index for one in done] == list(range(7))
    assert [len(one.token_ids) for one in done] == lengths


def test_a_text_begins_with_the_beginning_of_sequence_token(llm: LLM) -> None:
    assert llm.encode("ab") == [0, 9 + ord("a"), 9 + ord("b")]
    [text] = llm.generate("ab", GREEDY)
    [ids] = llm.generate(prompt_token_ids=[llm.encode("ab")], sampling_params=GREEDY)
    assert text.token_ids == ids.token_ids
    assert text.usage.prompt_tokens == 3


def test_token_ids_win_over_texts(llm: LLM) -> None:
    [both] = llm.generate(["a text"], GREEDY, [[0, 50]])
    as_array = numpy.array([0, 50], dtype="int32")
    [ids] = llm.generate(None, GREEDY, [as_array])  # type: ignore[list-item]
    assert both.token_ids == ids.token_ids


def test_bad_requests_fail_alone(llm: LLM) -> None:
    prompts: list[Any] = ["good", "", [0] * 512, [0, 288], [-1], "also good"]
    done = llm.generate(prompts, GREEDY)
    assert [one.finish_reason for one in done] == ["length", *["error"] * 4, "length"]
    messages = [one.error.message for one in done if one.error is not None]
    assert messages[0] == "the prompt is empty"
    assert messages[1].startswith("the prompt has 512 tokens, the engine holds 512")
    assert messages[2] == "token 1 of prompt is 288"
    assert messages[3] == "token 0 of prompt is -1"
    assert done[0].token_ids == llm.generate("good", GREEDY)[0].token_ids


def test_text_that_is_no_text_fails_alone(llm: LLM) -> None:
    bad, good = llm.generate(["\ud800", "good"], GREEDY)
    assert isinstance(bad.error, RequestError)
    assert good.error is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "no prompt was given"),
        ({"prompts": [1, 2]}, r"prompts\[0\] is of type int"),
        ({"prompts": ["a", None]}, r"prompts\[1\] is of type NoneType"),
        ({"prompt_token_ids": [1, 2]}, r"prompt_token_ids\[0\] is of type int"),
        ({"prompt_token_ids": ["12"]}, r"prompt_token_ids\[0\] is of type str"),
        ({"prompts": ["a"], "prompt_token_ids": [[1], [2]]}, "1 prompts and 2 lists"),
        ({"prompts": ["a", "b"], "sampling_params": [GREEDY]}, "1 sampling_params .* 2 prompts"),
        ({"prompts": ["a"], "sampling_params": [{}]}, r"sampling_params\[0\] is a dict"),
    ],
)
def test_arguments_that_do_not_fit_together_run_nothing(
    llm: LLM, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        llm.stream(**arguments)
    assert len(llm.engine.batch) == 0


def test_no_prompts_give_no_results(llm: LLM) -> None:
    assert llm.generate([]) == []


def test_a_stream_gives_what_generate_gives(llm: LLM) -> None:
    params = SamplingParams(seed=5, max_tokens=12, ignore_eos=True, logprobs=1)
    wanted = llm.generate(["one", "two"], params)
    texts, tokens = ["", ""], [(), ()]
    for delta in llm.stream(["one", "two"], params):
        texts[delta.index] += delta.text
        tokens[delta.index] += delta.token_ids
    assert texts == [one.text for one in wanted]
    assert tokens == [one.token_ids for one in wanted]


def test_leaving_a_stream_aborts_its_requests(llm: LLM) -> None:
    stream = llm.stream(["one", "two"], SamplingParams(max_tokens=100, ignore_eos=True))
    next(stream)
    assert len(llm.engine.batch) == 2
    stream.close()
    assert len(llm.engine.batch) == 0
    llm.engine.check_integrity()


def test_one_request_of_a_stream_can_be_aborted(llm: LLM) -> None:
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    stream = llm.stream(["one", "two"], params)
    next(stream)
    stream.abort(0)
    stream.abort(0)
    ended = [delta.completion for delta in stream if delta.completion is not None]
    assert [(done.index, done.finish_reason) for done in ended] == [(0, "abort"), (1, "length")]
    assert len(ended[0].token_ids) == 1


def test_letting_go_of_a_stream_aborts_its_requests(llm: LLM) -> None:
    for _ in llm.stream("one", SamplingParams(max_tokens=100, ignore_eos=True)):
        break
    assert len(llm.engine.batch) == 0


def test_a_call_within_an_open_stream_does_not_take_its_tokens(llm: LLM) -> None:
    params = SamplingParams(seed=5, max_tokens=6, ignore_eos=True)
    [wanted] = llm.generate("outer", params)
    text = ""
    for delta in llm.stream("outer", params):
        text += delta.text
        [inner] = llm.generate("inner", GREEDY)
        assert inner.error is None
    assert text == wanted.text


def test_an_interrupt_drops_what_runs_and_the_next_call_works(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = llm.generate("again", GREEDY)[0].token_ids
    runner, calls = llm.engine.runner, []
    launch = runner.launch

    def interrupted(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return launch(*arguments)

    monkeypatch.setattr(runner, "launch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["a", "b"], SamplingParams(max_tokens=50, ignore_eos=True))
    assert len(llm.engine.batch) == 0
    assert llm.generate("again", GREEDY)[0].token_ids == wanted


def test_greedy_takes_the_largest_logit_and_logprobs_are_the_models_own(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=6, logprobs=2, ignore_eos=True)
    [done] = llm.generate("Once", params)
    prompt = llm.encode("Once")
    found = logits(llm, [*prompt, *done.token_ids])[len(prompt) - 1 : -1]
    assert found.dtype == numpy.float32
    assert tuple(found.argmax(-1)) == done.token_ids
    # The sampler normalises in fp64 and rounds once, as is done here.
    logprobs = torch.from_numpy(found).double().log_softmax(-1).float().numpy()
    assert done.logprobs is not None
    for row, entry in zip(logprobs, done.logprobs, strict=True):
        order = numpy.argsort(-row, kind="stable")[:2]
        assert entry.top == tuple((int(i), float(row[i])) for i in order)
        assert entry.logprob == row[entry.token_id]


def test_a_sampled_token_may_be_unlikely_but_its_logprob_is_true(llm: LLM) -> None:
    [done] = llm.generate("Once", SamplingParams(seed=3, max_tokens=4, logprobs=True, top_k=50))
    prompt = llm.encode("Once")
    found = torch.from_numpy(logits(llm, [*prompt, *done.token_ids])[len(prompt) - 1 : -1])
    wanted = found.double().log_softmax(-1).float()
    assert done.logprobs is not None
    for row, entry in zip(wanted, done.logprobs, strict=True):
        assert entry.logprob == float(row[entry.token_id])
        assert entry.processed_logprob > entry.logprob


def test_banned_tokens_are_never_drawn(make_llm: MakeLLM) -> None:
    params = SamplingParams(seed=1, max_tokens=10, ignore_eos=True, top_k=5)
    [free] = make_llm().generate("x", params)
    banned = tuple(sorted(set(free.token_ids[::2])))
    [held] = make_llm(decode_token_blacklist=banned).generate("x", params)
    assert not set(held.token_ids) & set(banned)


def test_a_banned_token_outside_the_vocabulary_is_refused(make_llm: MakeLLM) -> None:
    with pytest.raises(ConfigError, match="decode_token_blacklist names token 288"):
        make_llm(decode_token_blacklist="3,288")


def test_documents_are_scored_by_their_prompt_logprobs(llm: LLM) -> None:
    documents = ["A first text.", "Ein zweiter, längerer Text."]
    scores = score_documents(llm, documents)
    assert [score.bytes for score in scores] == [len(text.encode()) for text in documents]
    assert [score.tokens for score in scores] == [len(text.encode()) for text in documents]
    ids = llm.encode(documents[0])
    rows = torch.from_numpy(logits(llm, ids)).double().log_softmax(-1)
    wanted = -sum(float(rows[i, ids[i + 1]]) for i in range(len(ids) - 1))
    # Each of 13 log-probabilities of at most 16 is rounded to fp32: relative error 2^-24 each.
    assert scores[0].nll == pytest.approx(wanted, rel=2**-24)
    total = sum(score.nll for score in scores) / numpy.log(2)
    # One more sum and division in fp64.
    assert bits_per_byte(llm, documents) == pytest.approx(
        total / sum(score.bytes for score in scores), rel=1e-15
    )


def test_the_end_of_a_document_can_be_scored_as_well(llm: LLM) -> None:
    [short] = score_documents(llm, ["abc"])
    [whole] = score_documents(llm, ["abc"], with_end=True)
    assert (short.tokens, whole.tokens, short.bytes, whole.bytes) == (3, 4, 3, 3)
    last = torch.from_numpy(logits(llm, llm.encode("abc"))).double().log_softmax(-1)[-1, 1]
    # Four numbers rounded to fp32, each at most 16.
    assert whole.nll - short.nll == pytest.approx(-float(last), abs=4 * 2**-20)


def test_an_empty_document_is_refused(llm: LLM) -> None:
    with pytest.raises(RequestError, match="the prompt is empty"):
        score_documents(llm, ["a", ""])
    with pytest.raises(RequestError, match="nothing to score"):
        bits_per_byte(llm, [])


@pytest.mark.parametrize(("ids", "message"), [([], "empty"), ([288], "288"), ([0] * 512, "512")])
def test_logits_of_an_invalid_text_are_refused(llm: LLM, ids: list[int], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        logits(llm, ids)


def test_draft_rounds_follow_the_models_own_text(llm: LLM) -> None:
    prompt = llm.encode("Once upon")
    rounds = draft_rounds(llm, prompt, 3)
    params = SamplingParams(temperature=0, max_tokens=19)
    text = [*prompt, *llm.generate([prompt], params)[0].token_ids]
    place = len(prompt)
    for one in rounds:
        assert (one.position, one.anchor) == (place, text[place])
        assert one.wanted == tuple(text[place + 1 : place + 6])
        assert len(one.drafts) == len(one.confidences) == 5
        assert all(0 <= value <= 1 for value in one.confidences)
        hits = [a == b for a, b in zip(one.drafts, one.wanted, strict=False)]
        assert one.accepted == ([*hits, False].index(False))
        place += one.accepted + 1


def test_a_later_round_drafts_what_a_first_round_there_would(llm: LLM) -> None:
    prompt = llm.encode("Once upon")
    first, second, *_ = draft_rounds(llm, prompt, 2)
    text = [*prompt, first.anchor, *first.wanted[: first.accepted]]
    [again] = draft_rounds(llm, text, 1)
    assert (again.anchor, again.drafts) == (second.anchor, second.drafts)
    assert again.confidences == second.confidences


def test_drafts_need_a_drafter(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    make_byte_checkpoint(
        folder,
        num_nextn_predict_layers=0,
        compress_ratios=[0, 0, 2, 2, 1, 1],
    )
    with LLM(folder) as llm, pytest.raises(NotSupported, match="without a drafter"):
        draft_rounds(llm, [0, 9], 1)


@pytest.mark.parametrize("rounds", [0, -1])
def test_at_least_one_round_is_run(llm: LLM, rounds: int) -> None:
    with pytest.raises(RequestError, match="rounds"):
        draft_rounds(llm, [0, 9], rounds)


def test_a_checkpoint_without_tokenizer_takes_token_ids_only(tmp_path: Path) -> None:
    folder = tmp_path / "silent"
    make_byte_checkpoint(folder, engram_layer_ids=[], engram_num_embeddings=[])
    (folder / "tokenizer.json").unlink()
    with LLM(folder) as llm:
        text, ids = llm.generate(["text", [0, 20]], GREEDY)
        assert "no tokenizer.json" in str(text.error)
        assert (len(ids.token_ids), ids.text) == (5, "")


def test_a_closed_engine_says_so(byte_checkpoint: Path) -> None:
    llm = LLM(byte_checkpoint, max_num_seqs=1)
    llm.close()
    llm.close()
    with pytest.raises(EngineError, match="closed"):
        llm.generate("a")


def test_closing_ends_an_open_stream(byte_checkpoint: Path) -> None:
    llm = LLM(byte_checkpoint, max_num_seqs=1)
    stream = llm.stream("a", SamplingParams(max_tokens=50, ignore_eos=True))
    next(stream)
    llm.close()
    with pytest.raises(EngineError, match="closed"):
        list(stream)


def test_an_interrupted_call_tells_the_others(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    outer = llm.stream("outer", SamplingParams(max_tokens=50, ignore_eos=True))
    next(outer)

    def interrupted(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(llm.engine.runner, "launch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            llm.generate("inner")
    with pytest.raises(EngineError, match="another call was interrupted"):
        list(outer)
    assert llm.generate("after", GREEDY)[0].error is None


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="nowhere does not exist"):
        LLM(tmp_path / "nowhere")
    with pytest.raises(WeightsError, match=r"no config\.json"):
        LLM(tmp_path)


def test_an_unknown_keyword_is_refused_with_the_nearest(byte_checkpoint: Path) -> None:
    with pytest.raises(ConfigError, match="max_num_seq"):
        LLM(byte_checkpoint, max_num_seq=1)


def test_a_published_keyword_without_meaning_here_is_refused_with_advice(
    byte_checkpoint: Path,
) -> None:
    with pytest.raises(ConfigError, match="LLM takes no decode_sequence") as caught:
        LLM(byte_checkpoint, decode_sequence=False)
    assert "both text and token ids" in caught.value.hint


def test_loading_tells_how_far_it_is(byte_checkpoint: Path) -> None:
    events: list[ProgressEvent] = []
    LLM(byte_checkpoint, progress=ProgressStream(events.append)).close()
    started, *advanced, finished = events
    assert isinstance(started, PhaseStarted)
    assert isinstance(finished, PhaseFinished)
    assert started.phase == "weights.load"
    assert started.total == finished.done
    assert len(advanced) > 10


def test_observers_and_the_log_learn_counts_and_no_text(
    llm: LLM, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="deepinfer"):
        llm.generate("a secret", GREEDY)
    [record] = [item for item in caplog.records if "request.finished" in item.getMessage()]
    assert "completion_tokens" in record.getMessage()
    assert "secret" not in caplog.text
