"""Does a prompt of any length, met by a cache in any state, get the bits of a cold run?

The oracle is a feeding of the whole text without engine (``testing.cold_text``): logits of every
row, and every row of the caches. ``test_a_cold_prompt_...`` shows that the engine's own cold runs
are the same. Each prompt then meets a cache in a state that the test arranged; how much of it is
reused and fed again must be what ``resume_point`` says of that state.

Windows of 16 with blocks of 16, and of 128 with blocks of 128.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from deepinfer_core.cache.recovery import Resume, resume_point
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.testing.beginnings import (
    LONGEST,
    ask,
    ask_forced,
    check_answer,
    check_resumed,
)
from deepinfer_core.testing.cached_prefix import CachedPrefix
from deepinfer_core.testing.cold_text import ColdText
from deepinfer_core.testing.seeds import seed_of
from deepinfer_core.testing.small_engines import Ask, EngineShape, SmallEngine
from deepinfer_core.testing.sweeps.engines import SHALLOW
from deepinfer_core.testing.sweeps.fixtures import ColdTexts, MakeEngine
from deepinfer_core.testing.sweeps.prefix_states import PARTIAL_STATES, Arrange, Left, whole
from deepinfer_core.testing.sweeps.sweep import Sweep

__all__ = ["CachedLengthsSweep"]

_EDGES = [*range(1, 132), *range(255, 260), *range(383, 388), *range(511, 515), 639, 640]
"""131 residues are all of a block of 128, and of its groups of two, with a token on either side."""

_Residues = Callable[[int, int], list[int]]


class CachedLengthsSweep(Sweep):
    """Prompts of 1 to 640 tokens."""

    @pytest.fixture(params=[16, 128])
    def size(self, request: pytest.FixtureRequest) -> int:
        """Tokens of the window and of a block."""
        return int(request.param)

    @pytest.fixture
    def cold(self, cold_texts: ColdTexts, size: int) -> ColdText:
        """The text in windows of that size."""
        return cold_texts(size)

    @pytest.fixture
    def warm(self, cold: ColdText, make_engine: MakeEngine, size: int) -> SmallEngine:
        """One engine for all states of the cache."""
        shape = EngineShape(block_tokens=size, max_rows=4096)
        return self.once(("warm", size), lambda: make_engine(cold.model, shape))

    @pytest.mark.parametrize(
        "lengths", [_EDGES[:44], _EDGES[44:88], _EDGES[88:]], ids=["a", "b", "c"]
    )
    def test_a_cold_prompt_gives_the_bits_of_the_whole_text(
        self, cold: ColdText, make_engine: MakeEngine, size: int, lengths: list[int]
    ) -> None:
        """Sixteen prompts at once."""
        engine = make_engine(cold.model, EngineShape(block_tokens=size, shares=False))
        for start in range(0, len(lengths), 16):
            asks = [ask(cold, length) for length in lengths[start : start + 16]]
            for asked, answer in zip(asks, engine.answer(asks), strict=True):
                assert answer.done.usage.cached_tokens == 0
                check_answer(cold, asked, answer)

    def test_a_prompt_of_every_length_resumes_at_its_last_whole_block(
        self, warm: SmallEngine, cold: ColdText, size: int
    ) -> None:
        """Nothing is fed again while every boundary has its state."""
        resumes = _sweep(warm, cold, size, whole, _all_residues)
        assert len(resumes) == LONGEST
        assert not any(resume.replayed_tokens for resume in resumes)
        assert max(resume.cached_tokens for resume in resumes) == LONGEST - size

    @pytest.mark.parametrize("state", PARTIAL_STATES)
    def test_prompts_do_not_care_which_part_of_them_is_cached(
        self, warm: SmallEngine, cold: ColdText, size: int, state: str
    ) -> None:
        """At the least and the most tokens behind a boundary, and some in between."""
        arrange, is_replayed = PARTIAL_STATES[state]
        resumes = _sweep(warm, cold, size, arrange, _some_residues, 2 if size == 16 else 1)
        assert max(resume.cached_tokens for resume in resumes) >= LONGEST - 4 * size
        assert any(resume.replayed_tokens for resume in resumes) == is_replayed

    def test_window_keys_of_the_full_model_s_length_are_fed_again_from_the_middle_of_a_prompt(
        self, cold_texts: ColdTexts, make_engine: MakeEngine
    ) -> None:
        """Two layers and the drafter that there might be reach back 3 * 127 = 381 tokens.

        From 512 on that is the second block, so the first is not fed, and no key of it is seen.
        """
        shallow = cold_texts(128, **SHALLOW)
        engine = make_engine(shallow.model, EngineShape(block_tokens=128, max_rows=4096))
        arrange, _ = PARTIAL_STATES["no state"]
        resumes = _sweep(engine, shallow, 128, arrange, _some_residues)
        assert max(resume.valid_start for resume in resumes) == 128

    def test_whatever_was_dropped_at_random_changes_no_bit(
        self, warm: SmallEngine, cold: ColdText, size: int, request: pytest.FixtureRequest
    ) -> None:
        """Snapshots often, blocks now and then."""
        _fill(warm, cold, size)
        prefix = CachedPrefix(warm.batch, cold.tokens[:LONGEST])
        draw = random.Random(seed_of(request))
        starts = set()
        for _ in range(12 if size == 16 else 6):
            left = _drop_at_random(prefix, size, draw)
            asks = [ask(cold, draw.randint(1, LONGEST)) for _ in range(4)]
            for resume in _answered(warm, cold, size, left, asks):
                starts.add((resume.cached_tokens > 0, resume.replayed_tokens > 0))
        assert (True, True) in starts
        assert (True, False) in starts

    def test_a_replay_that_is_cut_at_boundaries_leaves_a_state_at_its_end_only(
        self, cold_texts: ColdTexts, make_engine: MakeEngine
    ) -> None:
        """Each of five steps that feed cached tokens again ends at a boundary.

        The earlier ones leave window keys that are not exact yet.
        """
        cold = cold_texts(16)
        engine = make_engine(cold.model, EngineShape(max_rows=16))
        engine.answer([ask_forced(cold, 400, 1)])
        prefix = CachedPrefix(engine.batch, cold.tokens[:400])
        prefix.drop_snapshots()
        for end in (384, 352, 320):
            before = prefix.found().snapshots
            asked = ask_forced(cold, end + 5)
            [answer] = engine.answer([asked])
            assert answer.done.usage.replayed_tokens == 80
            assert prefix.found().snapshots == (end, *before)
            check_answer(cold, asked, answer)

    def test_an_answer_that_is_fed_again_leaves_exact_states_only(
        self, cold_texts: ColdTexts, make_engine: MakeEngine
    ) -> None:
        """Of 96 cached tokens 80 are fed again, a block in a step, to an end behind the prompt."""
        cold = cold_texts(16)
        engine = make_engine(cold.model, EngineShape(max_rows=16))
        asked = ask_forced(cold, 20, 100)
        number = engine.submit(0, asked.prompt, asked.params)
        sequence = engine.batch.get(number)
        assert sequence is not None
        while len(sequence.tokens) < 100:
            engine.step()
        prefix = CachedPrefix(engine.batch, cold.tokens[:120])
        engine.batch._preempt(sequence)
        prefix.drop_snapshots()
        engine.step()
        again = engine.runner.steps_of(number)[-1]
        assert (again.start, len(again.token_ids), again.cached_end) == (16, 16, 96)
        while len(engine.batch):
            engine.step()
        assert prefix.found().snapshots == (96, 112)
        for boundary in (96, 112):
            asked = ask_forced(cold, boundary + 5)
            [answer] = engine.answer([asked])
            assert answer.steps[0].start == boundary
            check_answer(cold, asked, answer)


def _fill(engine: SmallEngine, cold: ColdText, size: int) -> None:
    """Cache the whole text, with a snapshot behind every block."""
    for end in range(size, LONGEST + 1, size):
        engine.answer([Ask(prompt=cold.tokens[:end], params=SamplingParams(max_tokens=1))])


def _all_residues(size: int, end: int) -> list[int]:
    """Tokens behind the last reusable boundary: as many as there can be."""
    return [*range(1, size + 1)]


def _some_residues(size: int, end: int) -> list[int]:
    """The least and the most of them, and one in between that moves from block to block."""
    return [1, 2, 3 + end // size // 2 % (size - 4), size - 1, size]


def _sweep(
    engine: SmallEngine,
    cold: ColdText,
    size: int,
    arrange: Arrange,
    residues: _Residues,
    blocks_apart: int = 1,
) -> list[Resume]:
    """Meet numbers of reusable blocks, from the most down, so that states are left to drop."""
    _fill(engine, cold, size)
    prefix = CachedPrefix(engine.batch, cold.tokens[:LONGEST])
    resumes: list[Resume] = []
    for end in range(LONGEST - size, -1, -size * blocks_apart):
        behind = residues(size, end)
        for start in range(0, len(behind), 16):
            left = arrange(prefix, size, end)
            asks = [ask(cold, end + more) for more in behind[start : start + 16]]
            resumes += _answered(engine, cold, size, left, asks)
    return resumes


def _answered(
    engine: SmallEngine, cold: ColdText, size: int, left: Left, asks: list[Ask]
) -> list[Resume]:
    """Run requests together, check what comes back, and say where each had to start."""
    blocks, snapshots = left
    resumes = []
    for asked, answer in zip(asks, engine.answer(asks), strict=True):
        resume = resume_point(
            cached_blocks=blocks,
            snapshots=snapshots,
            limit_tokens=len(asked.prompt) - 1,
            recovery="exact",
            block_tokens=size,
            window_tokens=size,
            layers=cold.model.config.text_config.num_hidden_layers + 1,
        )
        check_resumed(answer, resume)
        check_answer(cold, asked, answer)
        resumes.append(resume)
    return resumes


def _drop_at_random(prefix: CachedPrefix, size: int, draw: random.Random) -> Left:
    for boundary in range(size, LONGEST + 1, size):
        if draw.random() < 0.4:
            prefix.drop_snapshot(boundary)
        if draw.random() < 0.05:
            prefix.drop_block(boundary // size - 1)
    left = prefix.found()
    return len(left.block_ids), list(left.snapshots)
