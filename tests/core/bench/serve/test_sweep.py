"""Does a sweep ask what was planned, and does a cache know only what it may?"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("httptools", reason="pip install 'deepinfer-core[bench]' runs these")
pytest.importorskip("msgspec", reason="pip install 'deepinfer-core[bench]' runs these")

from deepinfer_core.bench.lengths import parse_lengths
from deepinfer_core.bench.serve.bodies import Bodies
from deepinfer_core.bench.serve.client import Client, parse_target
from deepinfer_core.bench.serve.loads import Level
from deepinfer_core.bench.serve.scripts import Script
from deepinfer_core.bench.serve.sweep import LevelResult, Plan, requests_of, sweep
from deepinfer_core.bench.serve.visitor import CacheMode, Visitor
from deepinfer_core.errors import EngineError
from deepinfer_core.testing.scripted_service import Asked, Reply, ScriptedService, streamed_answer

Answer = Callable[[Asked], Reply]


def script(name: str, *turns: str) -> Script:
    return Script(
        name=name, kind="k", turns=tuple(({"role": "user", "content": text},) for text in turns)
    )


def run(
    scripts: list[Script], answer: Answer = streamed_answer, *, cache: CacheMode = "shared",
    salt_field: str = "", users: tuple[int, ...] = (2,), requests: int = 3, outputs: str = "2",
) -> tuple[LevelResult, list[LevelResult], list[dict[str, Any]]]:  # fmt: skip
    """A sweep with one request of the user alone; what came out, and all bodies."""
    plan = Plan(
        levels=tuple(Level(kind="closed", value=value) for value in users),
        requests=requests, alone=1, seed=0,
    )  # fmt: skip
    with ScriptedService(answer) as service:
        client = Client(parse_target(service.url), timeout_s=60.0)
        visitor = Visitor(
            client=client, bodies=Bodies(endpoint="chat", model="m", salt_field=salt_field),
            outputs=parse_lengths(outputs, ""), seed=0, cache=cache, salt="S",
        )  # fmt: skip

        async def all_loads() -> tuple[LevelResult, list[LevelResult]]:
            try:
                return await sweep(plan, scripts, visitor)
            finally:
                await client.close()

        alone, results = asyncio.run(all_loads())
        return alone, results, [asked.body for asked in service.asked]


def first_texts(bodies: list[dict[str, Any]]) -> list[str]:
    return [body["messages"][0]["content"] for body in bodies]


def test_a_load_has_as_many_requests_as_planned_and_scripts_are_asked_again() -> None:
    alone, [one, two], bodies = run([script("x", "a")], users=(1, 2), requests=4)
    assert [len(found.exchanges) for found in (alone, one, two)] == [1, 4, 4]
    # Before them one request of each user: 1 and 1, 1 and 4, 2 and 4.
    assert len(bodies) == 13
    assert [found.level.value for found in (one, two)] == [1, 2]
    assert one.elapsed_s >= max(exchange.total_s for exchange in one.exchanges)


def test_a_script_is_asked_to_its_end_with_the_answers_that_came() -> None:
    _, [found], bodies = run([script("x", "a", "b", "c")], requests=1)
    assert len(found.exchanges) == 3
    said = [[message["content"] for message in body["messages"][1:]] for body in bodies[-3:]]
    assert said == [[], [" w0 w1", "b"], [" w0 w1", "b", " w0 w1", "c"]]


def test_a_script_ends_with_its_first_failure() -> None:
    def refuse_second_turns(asked: Asked) -> Reply:
        is_second = len(asked.body["messages"]) > 1
        return Reply(status=500, pieces=(b"",)) if is_second else streamed_answer(asked)

    _, [found], _ = run([script("x", "a", "b", "c")], refuse_second_turns, requests=1)
    assert [one.failure for one in found.exchanges] == ["", "http 500"]


def test_no_two_requests_share_a_prefix_in_a_cold_cache() -> None:
    texts = first_texts(run([script("x", "a", "b")], cache="cold", requests=4)[2])
    assert len(texts) == 9
    assert len({text.split("]")[0] for text in texts}) == 9
    assert {text.split("] ")[1] for text in texts} == {"a"}


def test_requests_of_one_load_share_and_loads_do_not() -> None:
    texts = first_texts(run([script("x", "a")], users=(1, 1), requests=2)[2])
    # What is asked before a load, uncounted, shares nothing with it either.
    assert [text.removesuffix(" a") for text in texts] == [
        "[S-1]", "[S-2]", "[S-3]", "[S-4]", "[S-4]", "[S-5]", "[S-6]", "[S-6]",
    ]  # fmt: skip


def test_everything_known_is_asked_before_a_load_with_a_warm_cache() -> None:
    known = Script(
        name="x",
        kind="k",
        turns=(
            ({"role": "user", "content": "a"},),
            ({"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}),
        ),
    )
    alone, [found], bodies = run([known], cache="warm", requests=4)
    # Before the user alone and before the load: once each, however often the load asks it.
    warming = [place for place, body in enumerate(bodies) if body["max_tokens"] == 1]
    assert warming == [1, 6]
    assert [len(bodies[place]["messages"]) for place in warming] == [3, 3]
    assert set(first_texts(bodies)) == {"[S] a"}
    assert (len(alone.exchanges), len(found.exchanges)) == (2, 4)


def test_a_field_may_keep_caches_apart_and_leaves_the_text_alone() -> None:
    bodies = run([script("x", "a")], salt_field="user_id", requests=1)[2]
    assert [(body["user_id"], body["messages"][0]["content"]) for body in bodies] == [
        ("S-1", "a"),
        ("S-2", "a"),
        ("S-3", "a"),
        ("S-3", "a"),
        ("S-4", "a"),
    ]


def test_each_load_has_the_same_lengths_of_answers() -> None:
    scripts = [script(str(number), "a") for number in range(9)]
    bodies = run(scripts, users=(1, 1), requests=9, outputs="1..50")[2]
    lengths = [body["max_tokens"] for body in bodies]
    assert lengths[3:12] == lengths[13:]
    assert len(set(lengths[3:12])) > 3


def test_every_user_opens_a_script_before_the_load_and_is_not_counted() -> None:
    _, [found], bodies = run([script("x", "a", "b"), script("y", "c", "d")], users=(3,), requests=1)
    # One of the user alone before two, then three before the two that count.
    assert len(bodies) == 1 + 2 + 3 + 2
    assert [len(body["messages"]) for body in bodies] == [1, 1, 3, 1, 1, 1, 1, 3]
    assert len(found.exchanges) == 2


def test_a_service_that_answers_nothing_is_found_out_with_its_words() -> None:
    with pytest.raises(EngineError, match="no request was answered: http 404, no such model"):
        run([script("x", "a")], lambda _: Reply(status=404, pieces=(b"no such model",)))


@pytest.mark.parametrize(
    ("kind", "value", "requests", "expected"),
    [("closed", 1, None, 32), ("closed", 4, None, 32), ("closed", 5, None, 40),
     ("open", 1.0, None, 32), ("open", 2.01, None, 61), ("closed", 100, 7, 7)],
)  # fmt: skip
def test_a_load_has_some_requests_of_each_user_by_default(
    kind: Any, value: float, requests: int | None, expected: int
) -> None:
    plan = Plan(levels=(), requests=requests, alone=1, seed=0)
    assert requests_of(plan, Level(kind=kind, value=value)) == expected
