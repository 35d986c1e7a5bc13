"""Does a decode step leave everything on the device, from the plan to the drawn tokens?"""

from dataclasses import replace

import pytest
import torch
from deepinfer_core.cache.replay import DecoderTruncation
from deepinfer_core.engine.kernels.absent_device import Idle
from deepinfer_core.engine.rows import RowRequest, RowSettings
from deepinfer_core.engine.runner import ModelRunner
from deepinfer_core.interfaces.device import InlineStream
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.caches import allocate_caches
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.reference import sampler as reference_sampler
from deepinfer_core.schedule.plan import UNKNOWN_TOKEN, Copy, SequenceStep, StepPlan
from deepinfer_core.testing.absent_device import absent_parts
from deepinfer_core.testing.host_waits import no_host_waits
from deepinfer_core.testing.tiny_model import reference_parts, tiny_model

NUMERICS = Numerics()
VOCABULARY = 4096
SEQUENCES = 3
PROMPT = 40
"""Longer than the window of 16, so that no list lacks keys."""


def runner_of(model: TextModel, sampler: object) -> ModelRunner:
    caches = allocate_caches(
        model.config,
        model.parts.numerics,
        model.parts.codec,
        model.parts.device,
        num_blocks=8,
        num_slots=8,
        max_backtracking=6,
    )
    return ModelRunner(model, caches, sampler, InlineStream(), vocabulary=VOCABULARY)  # type: ignore[arg-type]


def prompts() -> StepPlan:
    return StepPlan(tuple(step(number, 0, tuple(range(PROMPT))) for number in range(SEQUENCES)))


def decode(start: int, drawn: int = -1, **copies: tuple[Copy, ...]) -> StepPlan:
    token = UNKNOWN_TOKEN if drawn >= 0 else 7
    steps = [
        step(number, start, (token,))._replace(drawn_index=number if drawn >= 0 else -1)
        for number in range(SEQUENCES)
    ]
    return StepPlan(tuple(steps), **copies)


def step(number: int, start: int, tokens: tuple[int, ...]) -> SequenceStep:
    return SequenceStep(
        sequence_id=number,
        start=start,
        token_ids=tokens,
        history=(1, 2, 3) if start else (-1, -1, -1),
        block_ids=(number + 1,),
        state_slot=number + 1,
        wants_token=True,
    )


def rows(position: int) -> tuple[RowRequest, ...]:
    """Requests of every kind: greedy and random, masked, biased, penalised and forced."""
    asked = [
        RowSettings(seed=1),
        RowSettings(seed=2, temperature=1.0, top_p=0.9, top_k=5, alternatives=2),
        RowSettings(seed=3, temperature=0.5, bias=((4, 1.0),), repetition_penalty=1.5),
    ]
    last = RowRequest(2, position, asked[2], None, (7,), ((5, 1), (6, 0)))
    return RowRequest(0, position, asked[0], 11), RowRequest(1, position, asked[1]), last


def run(runner: ModelRunner, plan: StepPlan, before: object, position: int) -> object:
    handle = runner.launch(plan, before)  # type: ignore[arg-type]
    runner.sample(handle, rows(position))
    for end in handle.ends:  # type: ignore[attr-defined]
        end.wait()
    return handle


@pytest.fixture(scope="module")
def parts() -> ModelParts:
    return reference_parts(NUMERICS)


def test_no_room_waits_for_the_device_in_a_decode_step(parts: ModelParts) -> None:
    context = BuildContext(device="cpu", needs=ModelNeeds())
    sampler = reference_sampler.build(None, context)
    with no_host_waits() as watch:
        names = ("prefill", "decode", "indexer", "codec", "dense", "grouped", "transform")
        permitted = {name: watch.permitting(getattr(parts, name)) for name in names}
        with watch.lift():
            model = tiny_model(NUMERICS, parts=replace(parts, **permitted))
            runner = runner_of(model, watch.permitting(sampler))
            before = run(runner, prompts(), None, PROMPT)
            before = run(runner, decode(PROMPT), before, PROMPT + 1)
        seen = watch.seen
        handle = run(runner, decode(PROMPT + 1, drawn=0), before, PROMPT + 2)
    assert watch.seen > seen + 100
    results = runner.results(handle)  # type: ignore[arg-type]
    assert next(result.token_id for result in results) == 11
    assert len(results[1].top) == 2


def test_nothing_but_queued_copies_passes_between_host_and_device() -> None:
    with torch.inference_mode():
        model = tiny_model(NUMERICS, parts=absent_parts(NUMERICS))
    runner = runner_of(model, Idle())
    copies = {
        name: (Copy(5, 6), Copy(6, 7)) for name in ("block_copies", "restored_slots", "saved_slots")
    }
    with no_host_waits() as watch:
        with watch.lift():  # plans and looked-up numbers are made once
            first = run(runner, decode(PROMPT), None, PROMPT + 1)
        run(runner, decode(PROMPT + 1, drawn=0, **copies), first, PROMPT + 2)
    assert watch.seen > 100


@pytest.mark.parametrize("start", [0, 1, 15, 16])
def test_a_step_at_the_start_of_a_text_leaves_everything_on_the_device(start: int) -> None:
    model = tiny_model(NUMERICS, parts=absent_parts(NUMERICS))
    runner = runner_of(model, Idle())
    with no_host_waits() as watch:
        with watch.lift():
            run(runner, decode(start), None, start + 1)
        run(runner, decode(start), None, start + 1)


@pytest.mark.parametrize("counts", [(PROMPT,), (PROMPT, 20), (1, PROMPT), (6, 7), (PROMPT, 1, 1)])
@pytest.mark.parametrize("mode", [None, "mask", "compact"])
def test_prompts_leave_everything_on_the_device(counts: tuple[int, ...], mode: str | None) -> None:
    """Where the decoder half drops rows too: the host knows which."""
    model = tiny_model(NUMERICS, parts=absent_parts(NUMERICS))
    runner = runner_of(model, Idle())
    if mode is not None:
        runner.truncation = DecoderTruncation(mode=mode, keep_tokens=22)  # type: ignore[arg-type]
    starts = [100 if count == 1 else 0 for count in counts]
    steps = [
        step(number, start, tuple(range(count)))._replace(
            cached_end=2 if start == 0 else 0, keep_from=8 if mode and start == 0 else 0
        )
        for number, (start, count) in enumerate(zip(starts, counts, strict=True))
    ]
    with no_host_waits() as watch:
        with watch.lift():
            run(runner, StepPlan(tuple(steps)), None, 200)
        run(runner, StepPlan(tuple(steps)), None, 200)


def test_the_engram_memory_is_hashed_and_read_by_the_device() -> None:
    model = tiny_model(NUMERICS, parts=absent_parts(NUMERICS))
    engrams = [layer.engram for layer in model.layers if layer.engram is not None]
    assert engrams
    for engram in engrams:
        hashing = engram.hashing
        parts = [hashing.multiplier_N, hashing.prime_C, hashing.offset_C, hashing.order_C]
        assert {part.device.type for part in (*parts, engram.table.data)} == {"meta"}
