"""The drafter inside an engine: the same answers as without, and everything recorded.

The model is random, so its drafts are hardly better than chance; acceptance is a matter of
``tests/e2e`` with the shipped checkpoint.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import pytest
import torch
from deepinfer_core.config.checkpoints import shipped_checkpoints
from deepinfer_core.engine.drafts.shared_rows import SharedRows
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.interfaces.draft_planner import DraftPlanner, DraftView
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.plugin import BuildContext
from deepinfer_core.plugin.context import ModelNeeds
from deepinfer_core.schedule.speculation_costs import CostCurve
from deepinfer_core.testing.draft_budgets import RandomBudget
from deepinfer_core.testing.events import captured_events
from deepinfer_core.testing.small_engines import Ask, EngineShape, slim_config, small_engine
from deepinfer_core.testing.speculation import matched_prompts
from deepinfer_core.testing.tiny_model import tiny_model
from deepinfer_dspark.drafter import DsparkDrafter, build
from deepinfer_dspark.measuring import MeasuredCosts
from deepinfer_dspark.options import DsparkOptions
from deepinfer_dspark.planner import DsparkPlanner
from deepinfer_dspark.recording import read_records

TOKENS = 24
PROMPTS = [[3 + n] * (5 + 7 * n) for n in range(5)]
ASKS = [
    Ask(prompt=prompt, params=SamplingParams(temperature=n % 2, seed=n, max_tokens=TOKENS))
    for n, prompt in enumerate(PROMPTS)
]
COSTS = MeasuredCosts(
    steps=CostCurve(rows=(1, 4, 8, 30), milliseconds=(1.0, 1.1, 1.2, 9.0)),
    rounds=CostCurve(rows=(1, 8), milliseconds=(0.01, 0.01)),
)


@pytest.fixture(scope="module")
def model() -> TextModel:
    return tiny_model(Numerics(), config=slim_config(16))


def drafter(record: Path | None = None) -> DsparkDrafter:
    return build(DsparkOptions(record=record), BuildContext(device="cpu", needs=ModelNeeds()))


def answers(model: TextModel, shape: EngineShape, **parts: object) -> list[tuple[int, ...]]:
    engine = small_engine(model, shape, **parts)
    return [one.done.token_ids for one in engine.answer(ASKS)]


@pytest.fixture(scope="module")
def plain(model: TextModel) -> list[tuple[int, ...]]:
    return answers(model, EngineShape())


@pytest.mark.parametrize("is_asynchronous", [False, True])
@pytest.mark.parametrize("drafts", [1, 4, 5])
def test_answers_are_those_without_drafts(
    model: TextModel, plain: list[tuple[int, ...]], drafts: int, is_asynchronous: bool
) -> None:
    shape = EngineShape(drafts=drafts, is_asynchronous=is_asynchronous)
    assert answers(model, shape, drafter=drafter()) == plain


class Watched(DsparkPlanner):
    """Remembers what it planned."""

    def __init__(self) -> None:
        super().__init__(COSTS, 5)
        self.planned: list[tuple[list[DraftView], list[int]]] = []

    def rows(self, views: Sequence[DraftView], *, other_rows: int) -> Sequence[int]:
        rows = super().rows(views, other_rows=other_rows)
        self.planned.append((list(views), list(rows)))
        return rows


@pytest.mark.parametrize("is_asynchronous", [False, True])
def test_answers_do_not_depend_on_what_is_planned(
    model: TextModel, plain: list[tuple[int, ...]], is_asynchronous: bool
) -> None:
    planner = Watched()
    shape = EngineShape(is_asynchronous=is_asynchronous)
    assert answers(model, shape, drafter=drafter(), planner=planner) == plain
    totals = {sum(rows) for _, rows in planner.planned}
    assert len(totals) > 1
    assert all(total <= 30 for total in totals)


class Scattered(RandomBudget):
    """Any split, a round behind every step, and the device may share rows out."""

    def drafts_next(self) -> bool:
        return True


@pytest.mark.skipif(
    not shipped_checkpoints(), reason="pip install -e plugins/deepinfer_tiny runs this"
)
def test_answers_do_not_depend_on_how_the_device_shares_out_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where steps are repeated from recordings, as those of ``core.cpu`` are."""
    moved: list[bool] = []
    known = SharedRows.rows

    def rows(self: SharedRows) -> tuple[int, ...]:
        moved.append(known(self) != self._planned)
        return known(self)

    monkeypatch.setattr(SharedRows, "rows", rows)
    asked = matched_prompts(16, seed=1, max_tokens=40)
    sizes = {"max_model_len": 512, "max_num_seqs": 8, "max_num_batched_tokens": 128}
    with LLM(**sizes) as llm:
        want = llm.generate(*asked)
    with LLM(**sizes, components={"drafter": {"use": "dspark.block"}}) as llm:
        assert llm.engine.batch.drafting is not None
        planner = Scattered(2, (1.0, 0.9, 0.8, 0.7, 0.6))
        llm.engine.batch.drafting.use(planner)
        found = llm.generate(*asked)
        llm.engine.check_integrity()
    assert [one.token_ids for one in found] == [one.token_ids for one in want]
    assert sum(moved) > 2
    assert planner.accepted > 20


def test_there_are_drafts_behind_the_first_token_of_an_answer(model: TextModel) -> None:
    planner = Watched()
    answers(model, EngineShape(), drafter=drafter(), planner=planner)
    # The second step decodes with all sequences; only the shortest prompts ended in the first.
    views, _ = planner.planned[1]
    assert [view.drafts for view in views] == [5] * len(ASKS)
    assert all(view.newest is not None for view in views)
    assert any(view.before is None for view in views)


def test_a_disk_that_fills_up_changes_no_answer(
    model: TextModel, plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    path = tmp_path / "record"
    full = drafter(path)
    engine = small_engine(model, EngineShape(), drafter=full)
    path.unlink()
    path.symlink_to("/dev/full")
    with captured_events() as events:
        found = [one.done.token_ids for one in engine.answer(ASKS)]
    assert found == plain
    assert [one["event"] for one in events].count("draft_record.ended") == 1


def test_all_blocks_are_recorded_with_what_became_of_them(model: TextModel, tmp_path: Path) -> None:
    answers(model, EngineShape(), drafter=drafter(tmp_path / "record"))
    header, records = read_records(tmp_path / "record")
    assert header.temperatures == model.config.text_config.confidence_temperatures
    assert bool(records.logit_Bn.isfinite().all())
    # Every step emits one token more than it accepts drafts; the first token is drawn without.
    whole = records.verified_B == 5
    assert int(whole.sum()) >= len(ASKS) * (TOKENS - 1 - 6) - int(records.accepted_B.sum())
    assert bool((records.accepted_B <= records.verified_B).all())
    assert len(torch.unique(records.logit_Bn, dim=0)) == len(records.logit_Bn)


class Silent(DraftPlanner):
    """Never wants a draft."""

    def rows(self, views: Sequence[DraftView], *, other_rows: int) -> Sequence[int]:
        return [1] * len(views)

    def drafts_next(self) -> bool:
        return False


def test_where_drafting_is_off_nothing_is_drafted(
    model: TextModel, plain: list[tuple[int, ...]], tmp_path: Path
) -> None:
    record = tmp_path / "record"
    found = answers(model, EngineShape(), drafter=drafter(record), planner=Silent())
    assert found == plain
    assert len(read_records(record)[1].verified_B) == 0


class Resting(Silent):
    """It does so for long."""

    def rest(self) -> int:
        return 100


def called_in_a_step(model: TextModel, sequences: int, *, drafts: bool) -> Counter[str]:
    """How often which function of ours is called in a step in which all decode."""
    parts: dict[str, object] = {"drafter": drafter(), "planner": Resting()} if drafts else {}
    engine = small_engine(model, EngineShape(), **parts)
    for index in range(sequences):
        engine.submit(index, [3 + index] * 5, SamplingParams(temperature=0, max_tokens=40))
    for _ in range(5):
        engine.step()
    called: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and "deepinfer_" in code.co_filename and "<" not in code.co_name:
            called[code.co_qualname] += 1

    sys.setprofile(note)
    try:
        engine.step()
    finally:
        sys.setprofile(None)
    engine.close()
    return called


@pytest.mark.parametrize("sequences", [1, 12])
def test_a_step_beside_a_resting_drafter_takes_the_way_of_an_engine_without_one(
    model: TextModel, sequences: int
) -> None:
    """Nothing is done for each sequence: the planner's rest, the clock, and a look at the rows."""
    without = called_in_a_step(model, sequences, drafts=False)
    beside = called_in_a_step(model, sequences, drafts=True)
    assert not without - beside
    assert beside - without == Counter(
        {
            "Drafting.want": 1,
            "RankedQueue.__len__": 1,
            "DraftStage.pack_feed": 1,
            "_has_drafts": 1,
            "Drafting.took": 1,
        }
    )
