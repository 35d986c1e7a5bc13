"""The component: what it makes of the engine's block, of its options, and of a plugin system."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from deepinfer_core.errors import ConfigError, NotSupported
from deepinfer_core.interfaces.draft_planner import DraftOutcome, DraftView
from deepinfer_core.interfaces.drafter import Choose, Drafter, DraftHost, DraftRound
from deepinfer_core.plugin import BuildContext
from deepinfer_core.plugin.context import ModelNeeds
from deepinfer_dspark.calibration import CalibrationTable, write_table
from deepinfer_dspark.drafter import build
from deepinfer_dspark.options import DsparkOptions
from deepinfer_dspark.plugin import deepinfer_cli_verbs, deepinfer_components
from deepinfer_dspark.recording import read_records

LOGITS = (0.5, -2.0, 700.0)
TEMPERATURES = (1.0, 2.0, 4.0)
TABLE = CalibrationTable(
    checkpoint="abc",
    rule="match",
    temperatures=(0.5, 1.0, 2.0),
    blocks=(100,) * 3,
    error_before=(0.1,) * 3,
    error_after=(0.0,) * 3,
)


def block(wanted: DraftRound, *, count: int, choose: Choose) -> tuple[torch.Tensor, torch.Tensor]:
    """Draft number i is whatever ``choose`` takes; its confidence has the same logit in all."""
    queries = wanted.anchor_token_Q.shape[0]
    tokens = [choose(torch.zeros(queries, 8), number) for number in range(count)]
    return torch.stack(tokens, dim=1), torch.tensor([LOGITS[:count]] * queries)


HOST = DraftHost(
    drafts=3, vocabulary=8, max_sequences=4, max_tokens=64, rule="match",
    torch_device=torch.device("cpu"), block=block, temperatures=TEMPERATURES, checkpoint="abc",
    identity="this machine",
)  # fmt: skip


def drafter(**options: Any) -> Drafter:
    return build(DsparkOptions(**options), BuildContext(device="cpu", needs=ModelNeeds()))


def attached(host: DraftHost = HOST, **options: Any) -> Drafter:
    found = drafter(**options)
    found.attach(host)
    return found


def a_round() -> DraftRound:
    two = torch.tensor([1, 2])
    return DraftRound(
        anchor_token_Q=two, accepted_position_Q=two, first_position_Q=two, place_Q=two,
        state_slot_Q=two,
    )  # fmt: skip


def test_the_engine_draws_every_draft() -> None:
    asked: list[int] = []

    def choose(logits_QV: torch.Tensor, number: int) -> torch.Tensor:
        asked.append(number)
        return torch.tensor([10, 20]) + number

    found = attached().propose(a_round(), choose)
    assert asked == [0, 1, 2]
    assert found.token_Qn.tolist() == [[10, 11, 12], [20, 21, 22]]


def choose_nothing(logits_QV: torch.Tensor, number: int) -> torch.Tensor:
    return torch.zeros(logits_QV.shape[0], dtype=torch.int64)


def test_a_confidence_is_the_sigmoid_of_its_logit_over_the_temperature() -> None:
    found = attached().propose(a_round(), choose_nothing)
    expected = (torch.tensor(LOGITS) / torch.tensor(TEMPERATURES)).clamp(-60, 60).sigmoid()
    assert found.confidence_Qn is not None
    assert torch.equal(found.confidence_Qn, expected.expand(2, 3))


def test_logits_of_confidences_come_back_as_the_network_gave_them() -> None:
    found = attached().propose(a_round(), choose_nothing)
    assert found.raw_Qn is not None
    assert found.raw_Qn.tolist() == [list(LOGITS)] * 2


def test_fewer_drafts_take_the_first_temperatures() -> None:
    found = attached(replace(HOST, drafts=2)).propose(a_round(), choose_nothing)
    assert found.confidence_Qn is not None
    assert found.confidence_Qn.shape == (2, 2)


def test_a_table_takes_the_place_of_the_checkpoints_temperatures(tmp_path: Path) -> None:
    write_table(tmp_path / "table.json", TABLE)
    found = attached(calibration=tmp_path / "table.json").propose(a_round(), choose_nothing)
    expected = (torch.tensor(LOGITS) / torch.tensor(TABLE.temperatures)).clamp(-60, 60).sigmoid()
    assert found.confidence_Qn is not None
    assert torch.equal(found.confidence_Qn, expected.expand(2, 3))


@pytest.mark.parametrize(
    "host", [replace(HOST, checkpoint="abd"), replace(HOST, temperatures=(1.0,) * 5)]
)
def test_a_table_of_another_checkpoint_or_block_is_refused(tmp_path: Path, host: DraftHost) -> None:
    write_table(tmp_path / "table.json", TABLE)
    with pytest.raises(ConfigError, match="asked for a calibration"):
        attached(host, calibration=tmp_path / "table.json")


def test_a_checkpoint_without_a_drafter_is_refused() -> None:
    with pytest.raises(NotSupported, match="found a checkpoint without a drafter"):
        attached(replace(HOST, block=None))


def test_what_became_of_drafts_is_recorded_if_asked_for(tmp_path: Path) -> None:
    found = attached(record=tmp_path / "record")
    found.learn([DraftOutcome(3, 1, raw=LOGITS), DraftOutcome(0, 0, raw=LOGITS)])
    header, records = read_records(tmp_path / "record")
    assert (header.checkpoint, header.rule, header.temperatures) == ("abc", "match", TEMPERATURES)
    assert records.accepted_B.tolist() == [1]


def test_nothing_is_recorded_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    attached().learn([DraftOutcome(3, 1, raw=LOGITS)])
    assert list(tmp_path.iterdir()) == []


def test_blocks_that_are_cut_are_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="asked to record blocks of 3 drafts, found that 2"):
        attached(replace(HOST, drafts=2), record=tmp_path / "record")


class Timer:
    """Steps of 10 ms and rounds of 1 ms, counted."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def step(self, rows: int) -> float:
        self.sizes.append(rows)
        return 0.01

    def round(self, sequences: int) -> float:
        return 0.001


def test_steps_of_all_sizes_are_measured_for_a_planner() -> None:
    timer = Timer()
    attached().planner(HOST, timer)
    assert sorted(set(timer.sizes)) == [
        1,
        2,
        4,
        8,
        10,
        12,
        14,
        16,
    ]  # 4 sequences of 3 drafts and an anchor


def test_steps_are_measured_at_the_sizes_that_they_are_padded_to() -> None:
    timer = Timer()
    attached().planner(replace(HOST, row_sizes=(2, 16)), timer)
    assert sorted(set(timer.sizes)) == [2, 16]


def measured_again(tmp_path: Path, second: DraftHost, **options: Any) -> bool:
    attached().planner(replace(HOST, cache_dir=str(tmp_path)), Timer())
    timer = Timer()
    attached(**options).planner(second, timer)
    return bool(timer.sizes)


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    assert not measured_again(tmp_path, replace(HOST, cache_dir=str(tmp_path)))


CHANGES: dict[str, Callable[[DraftHost], DraftHost]] = {
    "machine": lambda host: replace(host, identity="another machine"),
    "drafts": lambda host: replace(host, drafts=2),
    "sequences": lambda host: replace(
        host, max_sequences=8, row_sizes=(1, 2, 4, 8, 10, 12, 14, 16)
    ),
    "sizes": lambda host: replace(host, row_sizes=(16,)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_step_times_is_measured_again(tmp_path: Path, change: str) -> None:
    assert measured_again(tmp_path, CHANGES[change](replace(HOST, cache_dir=str(tmp_path))))


def test_a_lifetime_of_zero_measures_every_time(tmp_path: Path) -> None:
    second = replace(HOST, cache_dir=str(tmp_path))
    assert measured_again(tmp_path, second, curve_ttl_s=0)


def test_a_lifetime_of_zero_leaves_the_files_of_others_alone(tmp_path: Path) -> None:
    other = replace(HOST, cache_dir=str(tmp_path), identity="another machine")
    attached().planner(other, Timer())
    before = {path: path.read_text() for path in tmp_path.iterdir()}
    attached(curve_ttl_s=0).planner(replace(HOST, cache_dir=str(tmp_path)), Timer())
    assert {path: path.read_text() for path in tmp_path.iterdir()} == before != {}


def test_a_planner_plans() -> None:
    """Rows cost nothing up to the largest size, and a round little."""
    planner = attached().planner(HOST, Timer())
    views = [DraftView(3, (0.9, 0.8, 0.1), (0.9, 0.8, 0.1)), DraftView(3, (0.5,) * 3, (0.5,) * 3)]
    assert list(planner.rows(views, other_rows=0)) == [4, 4]
    assert planner.drafts_next()


def test_it_is_described_without_importing_it() -> None:
    [spec] = deepinfer_components()
    assert (spec.kind, spec.name, spec.slots) == ("drafter", "dspark.block", ("drafter",))
    [verb] = deepinfer_cli_verbs()
    assert verb.name == "calibrate"


def test_it_keeps_the_promises_of_its_description() -> None:
    [spec] = deepinfer_components()
    promises = drafter().properties
    assert {name: getattr(promises, name) for name in spec.properties} == dict(spec.properties)


def test_it_says_what_it_can_do_before_it_is_attached() -> None:
    found = drafter().capabilities
    assert (found.max_drafts, found.law) == (5, "full")
    assert found.has_confidence
    assert found.uses_block
