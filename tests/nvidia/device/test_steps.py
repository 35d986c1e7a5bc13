"""Do steps of the engine run on the device: right, without a wait, and from recordings?"""

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from deepinfer_core.cache.storage import Caches
from deepinfer_core.config import load_settings, resolve_components
from deepinfer_core.engine.decode_graphs import DecodeGraphs
from deepinfer_core.engine.model_loading import model_parts
from deepinfer_core.engine.runner import ModelRunner
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.interfaces.device import InlineStream
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.interfaces.operators.wanted import WantedKernel
from deepinfer_core.model.caches import allocate_caches
from deepinfer_core.model.evaluate import fresh_caches, text_step
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.reference import sampler as reference_sampler
from deepinfer_core.reference.sampler import ReferenceSampler
from deepinfer_core.schedule.plan import UNKNOWN_TOKEN, SequenceStep, StepPlan
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.rehearsed_engines import RehearsedEngine, engine_kernels
from deepinfer_core.testing.small_engines import Ask, EngineShape, slim_config, small_engine
from deepinfer_core.testing.tiny import tiny_test_config
from deepinfer_core.testing.tiny_model import reference_parts, tiny_model
from deepinfer_core.testing.verified_texts import Fed, VerifiedTexts
from deepinfer_core.weights.manifest import manifest_of
from deepinfer_nvidia.device.cuda import CudaDevice

NUMERICS = Numerics()
EXACT = Numerics(compute="float64", activation_quantisation=False, cache_quantisation=False)
TOKENS = [(7 * place) % 250 for place in range(60)]
COMPONENTS = ("prefill", "decode", "indexer", "codec", "dense", "grouped", "transform")


def logits(parts: ModelParts) -> torch.Tensor:
    """Of a prompt of fifty tokens, and of ten that are decoded."""
    model = tiny_model(EXACT, config=slim_config(16), parts=parts)
    caches = fresh_caches(model, len(TOKENS))
    ends = [50, *range(51, 61)]
    steps = [text_step(TOKENS, a, b, caches) for a, b in zip([0, *ends], ends, strict=False)]
    return torch.cat([model.forward(step, caches).cpu() for step in steps])


def test_the_reference_computes_on_the_device_what_it_computes_on_a_cpu(cuda: CudaDevice) -> None:
    parts = reference_parts(EXACT)
    wanted_TV, found_TV = logits(parts), logits(replace(parts, device=cuda))
    # fp64 sums of at most some hundreds of terms in another order, through four layers: 1e-9 is
    # far above their rounding, and far below what a wrong row or mask would change.
    assert float((found_TV - wanted_TV).abs().max()) <= 1e-9 * float(wanted_TV.abs().max())


@pytest.fixture
def errors_on_waits() -> Iterator[Callable[[str], None]]:
    """Sets what torch does when the host is about to wait for the device."""

    def set_mode(mode: str) -> None:
        with warnings.catch_warnings():
            # torch says once that it does not see every wait; ``testing.host_waits`` sees others.
            warnings.filterwarnings("ignore", "Synchronization debug mode", UserWarning)
            torch.cuda.set_sync_debug_mode(mode)

    yield set_mode
    set_mode("default")


class Lifting:
    """A component of the reference, which may wait."""

    def __init__(self, component: Any, set_mode: Callable[[str], None]) -> None:
        self._component = component
        self._set_mode = set_mode

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._component, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            mode = torch.cuda.get_sync_debug_mode()
            self._set_mode("default")
            try:
                return found(*arguments, **options)
            finally:
                self._set_mode(mode)  # type: ignore[arg-type]

        return call


def decoding(start: int, drawn: bool) -> StepPlan:
    steps = [
        SequenceStep(
            sequence_id=number,
            start=start,
            token_ids=(UNKNOWN_TOKEN if drawn else 7,),
            history=(1, 2, 3),
            block_ids=(number + 1,),
            state_slot=number + 1,
            wants_token=True,
            drawn_index=number if drawn else -1,
        )
        for number in range(3)
    ]
    return StepPlan(tuple(steps))


def test_no_room_waits_for_the_device_in_a_decode_step(
    cuda: CudaDevice, errors_on_waits: Callable[[str], None]
) -> None:
    parts = replace(reference_parts(NUMERICS), device=cuda)
    lifted: dict[str, Any] = {
        name: Lifting(getattr(parts, name), errors_on_waits) for name in COMPONENTS
    }
    model = tiny_model(NUMERICS, config=slim_config(16), parts=replace(parts, **lifted))
    caches = allocate_caches(
        model.config, NUMERICS, model.parts.codec, cuda,
        num_blocks=4, num_slots=4, max_backtracking=6,
    )  # fmt: skip
    context = BuildContext(device="nvidia", needs=ModelNeeds())
    sampler: Any = Lifting(reference_sampler.build(None, context), errors_on_waits)
    runner = ModelRunner(model, caches, sampler, cuda.stream(), vocabulary=288)
    before = None
    for start in range(40, 44):
        handle = runner.launch(decoding(start, drawn=before is not None), before)
        runner.sample(handle, rows(start + 1))
        if before is not None:
            runner.results(before)
        before = handle
        errors_on_waits("error")  # from the second step on
    errors_on_waits("default")
    assert before is not None
    assert len(runner.results(before)) == 3
    runner.close()


def rows(position: int) -> tuple[Any, ...]:
    from deepinfer_core.engine.rows import RowRequest, RowSettings

    settings = RowSettings(seed=1, temperature=1.0, top_k=5)
    return tuple(RowRequest(row, position, settings) for row in range(3))


PLAIN = tiny_test_config()
STEPPED = RehearsedEngine(
    config=PLAIN,
    shape=EngineShape(block_tokens=128, max_rows=256, max_sequences=6, longest=256),
    has_drafts=True,
    has_records=True,
    formats=dict.fromkeys(manifest_of(PLAIN).weights, "float32"),
)
"""What both recordings below are rehearsed as; tokens are drawn by the reference."""


@pytest.fixture(scope="module")
def own_parts(compile_ahead: Callable[[Sequence[WantedKernel], str], None]) -> ModelParts:
    """What ``device = "nvidia"`` picks by itself, whose kernels are compiled."""
    overrides = ["device=nvidia", "components.sampler.use=core.reference"]
    loaded = load_settings(overrides=overrides, environ={})
    resolution = resolve_components(loaded)
    if resolution.resolved is None:
        found = "; ".join(problem.message for problem in resolution.report.problems)
        pytest.skip(f"needs kernels for every slot: {found}")
    parts, folder = (
        model_parts(resolution.resolved, loaded.settings),
        resolution.resolved.context.cache_dir,
    )
    compile_ahead(engine_kernels([STEPPED], resolution.resolved, parts.numerics), folder)
    return parts


def asks() -> list[Ask]:
    lengths = (1, 2, 15, 16, 17, 30)
    return [
        Ask(
            prompt=TOKENS[:length],
            params=SamplingParams(max_tokens=40, seed=length, temperature=float(length % 2)),
        )
        for length in lengths
    ]


def test_recorded_steps_of_several_rows_give_the_bits_of_steps_that_are_launched(
    own_parts: ModelParts, request: pytest.FixtureRequest
) -> None:
    model = tiny_model(own_parts.numerics, parts=own_parts)
    chance, each = random.Random(request.node.name), model.config.verified_rows
    texts = [tuple(chance.choices(range(200), k=150)) for _ in range(5)]

    def decoding(*, is_recorded: bool) -> tuple[VerifiedTexts, Caches]:
        caches = allocate_caches(
            model.config, own_parts.numerics, own_parts.codec, own_parts.device,
            num_blocks=11, num_slots=6, max_backtracking=each, block_tokens=128,
        )  # fmt: skip
        graphs = None
        if is_recorded:
            graphs = DecodeGraphs(
                model, caches,
                max_sequences=5, max_tokens=200, block_tokens=128, rows_each=each,
            )  # fmt: skip
            graphs.record()
        runner = ModelRunner(
            model, caches, ReferenceSampler(), InlineStream(),
            vocabulary=model.config.text_config.vocab_size, graphs=graphs,
        )  # fmt: skip
        return VerifiedTexts(runner, texts, block_tokens=128, text_blocks=2), caches

    (got, got_caches), (want, want_caches) = decoding(is_recorded=True), decoding(is_recorded=False)
    for _ in range(40):
        some = chance.sample(range(5), chance.randint(1, 5))
        counts = [chance.randint(1, each) for _ in some]
        fed = [Fed(text, n, chance.randint(1, n)) for text, n in zip(some, counts, strict=True)]
        assert_same_bits(got.feed(*fed), want.feed(*fed))
    assert_same_bits(got_caches.blocks_PB[1:], want_caches.blocks_PB[1:])
    assert_same_bits(got_caches.states_PB[1:], want_caches.states_PB[1:])


def test_recorded_steps_give_the_bits_of_steps_that_are_launched_piece_by_piece(
    own_parts: ModelParts,
) -> None:
    model = tiny_model(own_parts.numerics, parts=own_parts)
    shape = EngineShape(
        block_tokens=128, blocks=32, max_rows=64, max_sequences=6, longest=200, snapshots=0,
        shares=False, is_asynchronous=True, mixes=False,
    )  # fmt: skip
    plain, recorded = small_engine(model, shape), small_engine(model, shape)
    recorded.runner.graphs = DecodeGraphs(
        model, recorded.runner.caches, max_sequences=6, max_tokens=200, block_tokens=128
    )
    recorded.runner.graphs.record()
    assert recorded.runner.graphs.recorded
    for got, want in zip(recorded.answer(asks()), plain.answer(asks()), strict=True):
        assert got.done.token_ids == want.done.token_ids
        assert_same_bits(got.logits_RV, want.logits_RV)
    plain.close()
    recorded.close()
