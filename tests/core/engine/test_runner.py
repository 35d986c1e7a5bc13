"""Plans as tensors, and rows of the sampler as results."""

from typing import Any

import pytest
import torch
from deepinfer_core.engine.rows import RowRequest, RowResult, RowSettings
from deepinfer_core.engine.runner import ModelRunner
from deepinfer_core.interfaces.component import Plan, Properties
from deepinfer_core.interfaces.device import InlineStream
from deepinfer_core.interfaces.sampler import Sampler, SamplerOutputs, SamplerRows, SamplerSpec
from deepinfer_core.model.step import StepInputs
from deepinfer_core.reference.device import CpuDevice
from deepinfer_core.reference.promises import PROMISES
from deepinfer_core.schedule.plan import UNKNOWN_TOKEN, Copy, StepPlan
from deepinfer_core.testing.steps import planned_step

CPU = CpuDevice()
OWN = ("forced", "banned", "seen")


def row(row: int, position: int, **values: Any) -> RowRequest:
    """A row whose settings are given beside it."""
    own = {name: values.pop(name) for name in OWN if name in values}
    return RowRequest(row, position, RowSettings(**values), **own)


class Mirror(Sampler):
    """Gives back what it was told, so that a test sees it."""

    def __init__(self) -> None:
        self.seen: list[SamplerRows] = []
        self.specs: list[tuple[SamplerSpec, int]] = []

    @property
    def properties(self) -> Properties:
        return PROMISES

    def plan(self, spec: SamplerSpec, max_rows: int) -> Plan:
        self.specs.append((spec, max_rows))
        return Plan(max_rows=max_rows)

    def run(
        self, plan: Plan, logits_RV: torch.Tensor, rows: SamplerRows, out: SamplerOutputs
    ) -> None:
        self.seen.append(rows)
        out.token_R.copy_(rows.position_R)
        out.logprob_R.fill_(-1.5)
        out.processed_logprob_R.fill_(-0.5)
        out.top_token_RA.copy_(torch.arange(out.top_token_RA.shape[1]).expand_as(out.top_token_RA))
        out.top_logprob_RA.fill_(-2.0)
        out.invalid_R.copy_(rows.position_R == 13)


class Model:
    """Gives zero logits."""

    class parts:  # noqa: N801 - stands for a field
        device = CPU

    def __init__(self) -> None:
        self.fed: list[StepInputs] = []

    def forward(self, inputs: StepInputs, caches: object) -> torch.Tensor:
        self.fed.append(inputs)
        return torch.arange(inputs.sample_row_R.shape[0]).float()[:, None].expand(-1, 70)


class Caches:
    """Remembers what is copied, and when."""

    def __init__(self, model: Model) -> None:
        self.copied: list[tuple[str, int, list[Copy]]] = []
        self._model = model

    def copy_slots(self, pairs: tuple[Copy, ...]) -> None:
        self.copied.append(("slots", len(self._model.fed), list(pairs)))

    def copy_blocks(self, pairs: tuple[Copy, ...]) -> None:
        self.copied.append(("blocks", len(self._model.fed), list(pairs)))


def make_runner(sampler: Sampler) -> tuple[ModelRunner, Model, Caches]:
    model = Model()
    caches = Caches(model)
    runner = ModelRunner(model, caches, sampler, InlineStream(), vocabulary=70)  # type: ignore[arg-type]
    return runner, model, caches


def run(*rows: RowRequest) -> tuple[Mirror, tuple[RowResult, ...]]:
    sampler = Mirror()
    runner, _, _ = make_runner(sampler)
    plan = StepPlan((planned_step(0, [5, 6], [3], 1)._replace(scored_rows=1),))
    handle = runner.launch(plan, None)
    runner.sample(handle, rows)
    return sampler, runner.results(handle)


def test_settings_of_each_row_reach_the_sampler() -> None:
    first = row(0, position=4, seed=(1 << 64) - 1, temperature=0.5, top_p=0.9)
    second = row(1, position=5, seed=1 << 63, top_k=7, min_p=0.25, forced=3)
    sampler, _ = run(first, second)
    [seen] = sampler.seen
    assert seen.temperature_R.tolist() == [0.5, 0.0]
    assert seen.top_p_R.tolist() == [pytest.approx(0.9, rel=2**-24), 1.0]  # rounded to fp32
    assert seen.top_k_R.tolist() == [-1, 7]
    assert seen.min_p_R.tolist() == [0.0, 0.25]
    assert seen.seed_R.tolist() == [-1, -(1 << 63)]
    assert seen.position_R.tolist() == [4, 5]
    assert seen.forced_R.tolist() == [-1, 3]
    assert seen.allowed_RW is None


@pytest.mark.parametrize("token", [0, 1, 31, 32, 63, 64, 69])
def test_a_banned_token_is_the_one_bit_missing_from_the_mask(token: int) -> None:
    sampler, _ = run(
        row(0, position=4, banned=(token,)),
        row(1, position=5),
    )
    mask = sampler.seen[0].allowed_RW
    assert mask is not None
    bits = [[int(word) >> bit & 1 for word in row for bit in range(32)] for row in mask]
    assert bits[0] == [int(place != token) for place in range(96)]
    assert bits[1] == [1] * 96


@pytest.mark.parametrize("allowed", [(0,), (31, 32), (5, 69), (3, 4, 5)])
def test_only_allowed_tokens_that_are_not_banned_have_a_bit(allowed: tuple[int, ...]) -> None:
    sampler, _ = run(
        row(0, position=4, allowed=allowed, banned=(4, 5)),
        row(1, position=5),
    )
    mask = sampler.seen[0].allowed_RW
    assert mask is not None
    assert mask.dtype == torch.int32
    bits = [[int(word) >> bit & 1 for word in row for bit in range(32)] for row in mask]
    assert [place for place, bit in enumerate(bits[0]) if bit] == [
        token for token in allowed if token not in (4, 5)
    ]
    assert bits[1][:70] == [1] * 70


def test_bias_and_penalties_reach_the_sampler_padded() -> None:
    first = row(0, position=4, bias=((7, 0.5), (9, -100.0)))
    second = row(
        1,
        position=5,
        repetition_penalty=1.5,
        frequency_penalty=0.25,
        presence_penalty=-2.0,
        seen=((69, 0), (0, 3), (4, 1)),
    )
    sampler, _ = run(first, second)
    rules = sampler.seen[0].rules
    assert rules is not None
    assert rules.bias_token_RB.tolist() == [[7, 9], [-1, -1]]
    assert rules.bias_RB[0].tolist() == [0.5, -100.0]
    assert rules.seen_token_RN.tolist() == [[-1, -1, -1], [69, 0, 4]]
    assert rules.output_count_RN[1].tolist() == [0, 3, 1]
    assert rules.repetition_R.tolist() == [1.0, 1.5]
    assert rules.frequency_R.tolist() == [0.0, 0.25]
    assert rules.presence_R.tolist() == [0.0, -2.0]
    assert rules.bias_RB.dtype == rules.repetition_R.dtype == torch.float32
    assert rules.seen_token_RN.dtype == rules.output_count_RN.dtype == torch.int64


def test_rows_without_bias_and_penalties_have_no_rules() -> None:
    sampler, _ = run(row(0, position=4), row(1, position=5))
    assert sampler.seen[0].rules is None


def test_each_row_gets_as_many_alternatives_as_it_asked_for() -> None:
    sampler, results = run(
        row(0, position=4, alternatives=3),
        row(1, position=13),
    )
    assert sampler.specs == [(SamplerSpec(vocabulary=70, alternatives=3), 2)]
    first, second = results
    assert first.top == ((0, -2.0), (1, -2.0), (2, -2.0))
    assert second.top == ()
    assert [result.invalid for result in results] == [False, True]


def test_a_step_without_sampled_rows_gives_no_results() -> None:
    sampler, results = run()
    assert (results, sampler.seen) == ((), [])


def test_an_open_token_is_taken_from_what_the_step_before_drew() -> None:
    runner, model, _ = make_runner(Mirror())
    before = runner.launch(
        StepPlan((planned_step(0, [5], [3], 1), planned_step(0, [6], [4], 2))), None
    )
    runner.sample(before, (row(0, position=21), row(1, position=22)))
    turned = (planned_step(1, [UNKNOWN_TOKEN], [4], 2), planned_step(1, [9, UNKNOWN_TOKEN], [3], 1))
    opened = tuple(
        one._replace(drawn_index=index) for one, index in zip(turned, (1, 0), strict=True)
    )
    runner.launch(StepPlan(opened), before)
    assert model.fed[1].token_T.tolist() == [22, 9, 21]  # Mirror draws the position


def test_a_row_whose_sequence_is_gone_is_not_sampled() -> None:
    sampler = Mirror()
    runner, _, _ = make_runner(sampler)
    handle = runner.launch(
        StepPlan((planned_step(0, [5], [3], 1), planned_step(0, [6], [4], 2))), None
    )
    runner.sample(handle, (row(1, position=22),))
    assert [result.token_id for result in runner.results(handle)] == [22]


def test_copies_are_made_around_the_forward_pass() -> None:
    runner, _, caches = make_runner(Mirror())
    plan = StepPlan(
        (planned_step(0, [5], [3], 1),),
        block_copies=(Copy(1, 2),),
        restored_slots=(Copy(3, 4),),
        saved_slots=(Copy(4, 5),),
    )
    runner.results(runner.launch(plan, None))
    assert caches.copied == [
        ("blocks", 0, [(1, 2)]),
        ("slots", 0, [(3, 4)]),
        ("slots", 1, [(4, 5)]),
    ]


def test_a_forward_pass_that_fails_is_raised_with_the_results_and_spares_the_next_step() -> None:
    runner, model, _ = make_runner(Mirror())
    broken = runner.launch(StepPlan((planned_step(0, [5], [3], 1),)), None)
    broken_forward, model.forward = model.forward, None  # type: ignore[assignment,method-assign]
    failed = runner.launch(StepPlan((planned_step(1, [5], [3], 1),)), broken)
    runner.sample(failed, (row(0, position=1),))
    model.forward = broken_forward  # type: ignore[method-assign]
    behind = planned_step(2, [UNKNOWN_TOKEN], [3], 1)._replace(drawn_index=0)
    after = runner.launch(StepPlan((behind,)), failed)
    runner.sample(after, (row(0, position=2),))
    with pytest.raises(TypeError):
        runner.results(failed)
    assert len(runner.results(after)) == 1
