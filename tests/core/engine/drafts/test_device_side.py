"""Does a step that verifies drafts leave everything on the device, from the plan to the drafts?"""

from dataclasses import replace
from typing import Any

import pytest
from deepinfer_core.config.components import NgramOptions
from deepinfer_core.engine.drafts.opening import open_stage
from deepinfer_core.engine.rows import DraftRequest, RowRequest, RowSettings
from deepinfer_core.engine.runner import ModelRunner
from deepinfer_core.interfaces.device import InlineStream
from deepinfer_core.interfaces.drafter import Drafter, DraftHost
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.caches import allocate_caches
from deepinfer_core.reference.ngram import NgramDrafter
from deepinfer_core.reference.sampler import ReferenceSampler
from deepinfer_core.schedule.plan import UNKNOWN_TOKEN, Prefix, SequenceStep, StepPlan
from deepinfer_core.testing.block_drafter import BlockDrafter
from deepinfer_core.testing.host_waits import no_host_waits
from deepinfer_core.testing.small_engines import slim_config
from deepinfer_core.testing.tiny_model import reference_parts, tiny_model

NUMERICS = Numerics()
PROMPT = 40
"""Longer than the window of 16."""
TEXTS, DRAFTS = 3, 5


def runner_of(model: TextModel, sampler: Any, drafter: Drafter, rule: Any) -> ModelRunner:
    parts, vocabulary = model.parts, model.config.text_config.vocab_size
    caches = allocate_caches(
        model.config, parts.numerics, parts.codec, parts.device,
        num_blocks=8, num_slots=8, max_backtracking=6,
    )  # fmt: skip
    host = DraftHost(
        drafts=DRAFTS, vocabulary=vocabulary, max_sequences=TEXTS, max_tokens=128, rule=rule,
        torch_device=parts.device.torch_device,
    )  # fmt: skip
    stage = open_stage(drafter, host, model, caches, sampler)
    return ModelRunner(model, caches, sampler, InlineStream(), vocabulary=vocabulary, stage=stage)


def step(number: int, start: int, token_ids: tuple[int, ...], **rest: int) -> SequenceStep:
    return SequenceStep(
        sequence_id=number,
        start=start,
        token_ids=token_ids,
        history=(1, 2, 3),
        block_ids=(number + 1,),
        state_slot=number + 1,
        wants_token=True,
        place=number + 1,
        **rest,
    )


def prompts() -> StepPlan:
    steps = [step(number, 0, tuple(range(PROMPT))) for number in range(TEXTS)]
    return StepPlan(tuple(steps), prefixes=(Prefix(1, (1, 2, 3)),))


def verifying(start: int, open_rows: int, rows_before: int) -> StepPlan:
    """Every text feeds its last token and its drafts; all of them are open."""
    steps = [
        step(
            number,
            start,
            (UNKNOWN_TOKEN,) * (1 + DRAFTS),
            scored_rows=DRAFTS,
            drawn_index=number * rows_before,
            open_rows=open_rows,
        )
        for number in range(TEXTS)
    ]
    return StepPlan(tuple(steps))


def run(runner: ModelRunner, plan: StepPlan, before: Any, position: int) -> Any:
    each = 1 + plan.sequences[0].scored_rows
    settings = RowSettings(seed=1, temperature=1.0, top_p=0.9)
    rows = [
        RowRequest(
            number * each + row, position + row, settings,
            draft=4 if row < each - 1 else -1,
            law_row=(number + 1) * DRAFTS + row if row < each - 1 else -1,
        )
        for number in range(TEXTS)
        for row in range(each)
    ]  # fmt: skip
    wanted = [
        DraftRequest(number + 1, number * each, each, position - 1, number + 1, 0, settings, (3,))
        for number in range(TEXTS)
    ]
    handle = runner.launch(plan, before)
    runner.sample(handle, tuple(rows), tuple(wanted))
    for end in handle.ends:  # type: ignore[attr-defined]
        end.wait()
    return handle


@pytest.mark.parametrize(
    ("drafter", "rule"),
    [(BlockDrafter(), "match"), (BlockDrafter(), "ratio"), (NgramDrafter(NgramOptions()), "match")],
    ids=["block", "block by ratio", "ngram"],
)
def test_nobody_waits_for_the_device_in_a_step_that_verifies(drafter: Drafter, rule: Any) -> None:
    """What the components themselves do is theirs to promise."""
    parts = reference_parts(NUMERICS)
    with no_host_waits() as watch:
        names = ("prefill", "decode", "indexer", "codec", "dense", "grouped", "transform")
        permitted = {name: watch.permitting(getattr(parts, name)) for name in names}
        with watch.lift():
            config = slim_config(16)
            model = tiny_model(NUMERICS, config=config, parts=replace(parts, **permitted))
            runner = runner_of(model, watch.permitting(ReferenceSampler()), drafter, rule)
            first = run(runner, prompts(), None, PROMPT)
            second = run(runner, verifying(PROMPT, 0, 1), first, PROMPT + 1)
        seen = watch.seen
        third = run(runner, verifying(PROMPT + 6, DRAFTS, 6), second, PROMPT + 2)
    assert watch.seen > seen + 200
    assert len(runner.results(third)) == TEXTS * 6
    assert len(runner.drafted(third).results) == TEXTS
