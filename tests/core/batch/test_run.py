"""Running a batch: each line once, the engine kept full, the file not queued whole."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.batch.lines import BatchLine, read_line
from deepinfer_core.batch.run import WINDOW_PER_SEAT, Service, answer_lines
from deepinfer_core.engine.core import Engine
from deepinfer_core.errors import ConfigError, WeightsError
from deepinfer_core.schedule.plan import StepPlan
from deepinfer_core.testing.fake_runner import FakeRunner

SEATS, BLOCK = 2, 4  # of the engine that ``make_engine`` builds
MakeEngine = Callable[..., Engine]
ServiceOver = Callable[..., Service]
RequestText = Callable[..., str]
AnswerFile = Callable[[Path, Path], None]


def lines_of(*texts: str) -> Iterator[BatchLine]:
    return iter([read_line(text.encode(), i) for i, text in enumerate(texts, start=1)])


def known(text: str) -> dict[str, Any]:
    """Answers by their identity, without the time at which they were made."""
    found = {}
    for shown in map(json.loads, text.splitlines()):
        if shown["response"] is not None:
            shown["response"]["body"].pop("created", None)
        assert shown["id"] not in found
        found[shown["id"]] = shown
    return found


@pytest.mark.parametrize("count", [0, 1, SEATS * WINDOW_PER_SEAT, SEATS * WINDOW_PER_SEAT + 1, 9])
def test_every_request_is_answered_once(
    make_engine: MakeEngine, service_over: ServiceOver, request_text: RequestText, count: int
) -> None:
    engine = make_engine()
    texts = [request_text(str(i), max_tokens=1 + i % 5) for i in range(count)]
    answers = list(answer_lines(service_over(engine), lines_of(*texts)))
    assert sorted(shown["custom_id"] for shown in answers) == sorted(map(str, range(count)))
    assert all(shown["error"] is None for shown in answers)
    engine.check_integrity()
    assert len(engine.batch) == 0


def test_an_answer_has_the_model_that_was_named_or_else_that_of_the_run(
    make_engine: MakeEngine, service_over: ServiceOver, request_text: RequestText
) -> None:
    texts = [request_text("a"), request_text("b", model="named"), request_text("c", model=None)]
    answers = list(answer_lines(service_over(make_engine()), lines_of(*texts)))
    names = {shown["custom_id"]: shown["response"]["body"]["model"] for shown in answers}
    assert names == {"a": "the model", "b": "named", "c": "the model"}


def test_bad_lines_and_requests_are_answered_and_stop_no_others(
    make_engine: MakeEngine, service_over: ServiceOver, request_text: RequestText
) -> None:
    texts = ["{", request_text("a"), request_text("b", foo=1), request_text("c", prompt="x" * 99)]
    answers = list(answer_lines(service_over(make_engine()), lines_of(*texts, request_text("d"))))
    statuses = {
        shown["custom_id"]: shown["response"] and shown["response"]["status_code"]
        for shown in answers
    }
    assert statuses == {None: None, "a": 200, "b": 400, "c": 400, "d": 200}
    assert [shown["error"]["line"] for shown in answers if shown["error"]] == [1, 3, 4]


def test_a_failing_step_is_an_answer_to_its_requests_only(
    make_engine: MakeEngine, service_over: ServiceOver, request_text: RequestText
) -> None:
    steps = iter(range(1000))

    def before_step(plan: StepPlan) -> None:
        if next(steps) == 0:
            raise RuntimeError("boom")

    engine = make_engine(FakeRunner(265, BLOCK, before_step))
    texts = [request_text(str(i)) for i in range(SEATS + 2)]
    answers = list(answer_lines(service_over(engine), lines_of(*texts)))
    codes = [shown["response"]["status_code"] for shown in answers]
    assert codes == [500] * SEATS + [200] * 2


def test_the_engine_stays_full_while_there_are_requests(
    make_engine: MakeEngine, service_over: ServiceOver, request_text: RequestText
) -> None:
    runner = FakeRunner(265, BLOCK)
    # One request is much longer than the others: they must pass it by.
    texts = [request_text("long", max_tokens=40)]
    texts += [request_text(str(i), max_tokens=2) for i in range(15)]
    engine = make_engine(runner, asynchronous=False)
    list(answer_lines(service_over(engine), lines_of(*texts)))
    counts = [len(plan.sequences) for plan in runner.plans]
    # 40 steps of the long one, 2 for each of the 15 that run beside it.
    assert counts == [SEATS] * 30 + [1] * 10


def test_no_more_lines_are_read_than_there_is_room_for(
    make_engine: MakeEngine, service_over: ServiceOver, request_text: RequestText
) -> None:
    taken = 0

    def counted() -> Iterator[BatchLine]:
        nonlocal taken
        for line in lines_of(*[request_text(str(i)) for i in range(50)]):
            taken += 1
            yield line

    answers = answer_lines(service_over(make_engine()), counted())
    for answered, _ in enumerate(answers, start=1):
        assert taken <= answered - 1 + 2 * SEATS


def test_leaving_ends_what_still_runs(
    make_engine: MakeEngine, service_over: ServiceOver, request_text: RequestText
) -> None:
    engine = make_engine()
    answers = answer_lines(
        service_over(engine), lines_of(*[request_text(str(i)) for i in range(9)])
    )
    next(answers)
    assert len(engine.batch) > 0
    answers.close()  # type: ignore[attr-defined]
    assert len(engine.batch) == 0


def test_a_conversation_is_encoded_by_the_service(
    make_engine: MakeEngine, service_over: ServiceOver, request_text: RequestText
) -> None:
    line = read_line(
        json.dumps(
            {
                "custom_id": "a",
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2},
            }
        ).encode(),
        1,
    )
    [shown] = answer_lines(service_over(make_engine()), iter([line]))
    assert shown["response"]["body"]["usage"]["prompt_tokens"] == 1 + len("hello")
    refusing = service_over(make_engine(), encode_chat=raising(WeightsError("no chat form")))
    [shown] = answer_lines(refusing, iter([line]))
    assert shown["response"]["status_code"] == 500
    lacking = service_over(make_engine(), encode_chat=raising(ConfigError("no library")))
    with pytest.raises(ConfigError, match="no library"):
        list(answer_lines(lacking, iter([line])))


def raising(error: Exception) -> Callable[[Any], list[int]]:
    def encode(messages: Any) -> list[int]:
        raise error

    return encode


def test_another_engine_seed_draws_anew_but_not_for_requests_with_a_seed(
    make_engine: MakeEngine, service_over: ServiceOver, request_text: RequestText
) -> None:
    def tokens(engine_seed: int) -> dict[str, list[int]]:
        service = service_over(make_engine(), engine_seed=engine_seed)
        texts = [request_text("own", seed=3), request_text("none")]
        return {
            shown["custom_id"]: shown["response"]["body"]["choices"][0]["token_ids"]
            for shown in answer_lines(service, lines_of(*texts))
        }

    first, again, other = tokens(1), tokens(1), tokens(2)
    assert first == again
    assert first["own"] == other["own"]
    assert first["none"] != other["none"]


def test_a_run_that_was_cut_anywhere_is_finished_with_the_same_answers(
    tmp_path: Path, request_text: RequestText, answer_file: AnswerFile
) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(request_text("a") + "{\n" + request_text("b", n=2) + request_text("é"))
    answer_file(source, target)
    whole = target.read_bytes()
    expected = known(whole.decode())
    assert len(expected) == 4
    ends = [place for place, byte in enumerate(whole) if byte == ord("\n")]
    near_ends = {end + step for end in ends for step in (0, 1, 2)}
    for size in sorted({0, 1, *range(5, len(whole), 31), *near_ends} - {len(whole) + 1}):
        target.write_bytes(whole[:size])
        answer_file(source, target)
        assert known(target.read_text()) == expected


def test_a_finished_output_is_not_touched_by_another_run(
    tmp_path: Path, request_text: RequestText, answer_file: AnswerFile
) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(request_text("a"))
    answer_file(source, target)
    whole = target.read_bytes()
    answer_file(source, target)
    assert target.read_bytes() == whole


def test_requests_may_be_appended_and_reordered_between_runs(
    tmp_path: Path, request_text: RequestText, answer_file: AnswerFile
) -> None:
    source, target, fresh = (tmp_path / name for name in ("in.jsonl", "out.jsonl", "new.jsonl"))
    source.write_text(request_text("a"))
    answer_file(source, target)
    source.write_text(request_text("b") + request_text("a"))
    answer_file(source, target)
    answer_file(source, fresh)
    assert known(target.read_text()) == known(fresh.read_text())


def test_a_changed_request_is_refused(
    tmp_path: Path, request_text: RequestText, answer_file: AnswerFile
) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(request_text("a"))
    answer_file(source, target)
    source.write_text(request_text("a", max_tokens=4))
    with pytest.raises(ConfigError, match="the output answers 1 lines"):
        answer_file(source, target)
