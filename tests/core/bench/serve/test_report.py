"""Do figures say what the requests of a load showed, and next to what?"""

from array import array

import pytest

pytest.importorskip("msgspec", reason="pip install 'deepinfer-core[bench]' runs these")

from deepinfer_core.bench.figures import Figure
from deepinfer_core.bench.serve.exchange import Exchange
from deepinfer_core.bench.serve.headroom import Headroom
from deepinfer_core.bench.serve.loads import Level
from deepinfer_core.bench.serve.report import failures, level_figures, was_bottleneck
from deepinfer_core.bench.serve.sweep import LevelResult

IDLE = Headroom(busy_share=0.1, lag_p99_s=0.001)


def exchange(slowness: float, *, due_s: float = 0.0, failure: str = "") -> Exchange:
    """Status at 1, tokens at 2, 3 and 4, end at 5, times the slowness; 3 tokens for 6."""
    found = Exchange(kind="k", due_s=due_s, sent_s=due_s, status_s=due_s + slowness)
    found.token_times_s = array("d", [due_s + slowness * place for place in (2, 3, 4)])
    found.ended_s = due_s + 5 * slowness
    found.prompt_tokens, found.cached_tokens, found.completion_tokens = 6, 2, 3
    if failure:
        found.fail(failure)
    return found


def result(
    *exchanges: Exchange, level: Level | None = None, headroom: Headroom = IDLE
) -> LevelResult:
    level = level or Level(kind="closed", value=4)
    return LevelResult(level=level, exchanges=exchanges, elapsed_s=10.0, headroom=headroom)


ALONE = result(exchange(1.0), level=Level(kind="closed", value=1))


def figures(found: LevelResult, alone: LevelResult = ALONE) -> dict[str, Figure]:
    named = level_figures(found, alone, "load")
    assert all(one.name.endswith("[load]") for one in named)
    return {one.name.removeprefix("serve.").removesuffix("[load]"): one for one in named}


def test_rates_of_users_stand_next_to_the_one_alone_times_the_users() -> None:
    found = figures(result(exchange(2.0), exchange(2.0)))
    for name, value, alone in (
        ("requests", 0.2, 0.1),
        ("output_tokens", 0.6, 0.3),
        ("total_tokens", 1.8, 0.9),
    ):
        assert found[name].value == pytest.approx(value, rel=1e-12)
        assert found[name].reference.value == pytest.approx(4 * alone, rel=1e-12)
        assert found[name].reference.kind == "peer"


def test_rates_of_an_open_load_stand_next_to_what_was_offered() -> None:
    # Three requests within 4 s, so 0.75 a second were offered, and 0.3 a second were answered.
    exchanges = [exchange(1.0, due_s=due_s) for due_s in (0.0, 1.0, 4.0)]
    found = figures(result(*exchanges, level=Level(kind="open", value=0.5)))
    assert found["requests"].reference.kind == "bound"
    assert found["requests"].reference.value == pytest.approx(0.75, rel=1e-12)
    assert found["output_tokens"].ratio == pytest.approx(0.4, rel=1e-12)


def test_latencies_have_three_percentiles_next_to_those_of_the_one_alone() -> None:
    found = figures(result(exchange(2.0), exchange(3.0)))
    for name, alone in (
        ("queue", 1.0),
        ("first_token", 2.0),
        ("inter_token", 1.0),
        ("request", 5.0),
    ):
        assert found[f"{name}.p50"].value == 2 * alone
        assert found[f"{name}.p90"].value == 3 * alone
        assert found[f"{name}.p99"].ratio == 3.0
        assert found[f"{name}.p50"].reference.value == alone
    # Two more tokens in 4 s and in 6 s; their median lies between.
    assert found["user_speed.p50"].value == pytest.approx((0.5 + 1 / 3) / 2, rel=1e-12)


def test_failures_are_counted_by_kind_and_give_no_latency() -> None:
    found = result(exchange(2.0), exchange(9.0, failure="cut"), exchange(9.0, failure="cut"))
    assert failures(found) == {"cut": 2}
    assert figures(found)["failures"].value == 2
    assert figures(found)["failures"].reference.value == 3
    assert figures(found)["request.p99"].value == 10.0


def test_cached_tokens_stand_next_to_all_of_the_prompts() -> None:
    found = figures(result(exchange(1.0), exchange(1.0)))["cached_tokens"]
    assert (found.value, found.reference.value) == (4, 12)


def test_a_load_that_failed_as_a_whole_has_no_latencies() -> None:
    found = figures(result(exchange(1.0, failure="connect")))
    assert found["requests"].value == 0.0
    assert "request.p50" not in found
    assert found["failures"].ratio == 1.0


def test_durations_below_the_clock_can_be_divided_by() -> None:
    assert figures(result(exchange(1.0)), result(exchange(0.0)))["queue.p50"].ratio == 1e6


@pytest.mark.parametrize(
    ("busy_share", "lag_p99_s", "expected"),
    [(0.89, 0.99, False), (0.9, 0.0, True), (0.0, 1.0, True)],
)
def test_a_generator_without_time_left_is_called_the_bottleneck(
    busy_share: float, lag_p99_s: float, expected: bool
) -> None:
    # The mean gap between two events is 1 s.
    headroom = Headroom(busy_share=busy_share, lag_p99_s=lag_p99_s)
    found = result(exchange(1.0), headroom=headroom)
    assert was_bottleneck(found) is expected
    assert figures(found)["generator.busy"].value == busy_share
    assert figures(found)["generator.lag.p99"].ratio == lag_p99_s
