"""Does an engine that verifies drafts give what one without them gives, to the last bit?

Of 35 texts of all lengths around a window, a block and a pair, some drawn, some greedy, with what
changes draws: right drafts, wrong ones and none are mixed, and budgets are random.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest

from deepinfer_core.config.components import NgramOptions
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.interfaces.drafter import Drafter
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.reference.ngram import NgramDrafter
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.block_drafter import BlockDrafter
from deepinfer_core.testing.draft_budgets import RandomBudget
from deepinfer_core.testing.knowing_drafter import KnowingDrafter
from deepinfer_core.testing.small_engines import Answer, Ask, EngineShape, SmallEngine
from deepinfer_core.testing.sweeps.sweep import Sweep

__all__ = ["DraftsSweep"]

Texts = list[tuple[int, ...]]

MakeDraftingEngine = Callable[..., SmallEngine]
"""``(model, shape, *, drafter=None, planner=None)``: puts an engine together."""

_TOKENS = 18
_SHAPE: dict[str, Any] = {
    "block_tokens": 16,
    "blocks": 160,
    "max_rows": 128,
    "max_sequences": 16,
    "longest": 200,
    "snapshots": 16,
}


class DraftsSweep(Sweep):
    """Drafts of every kind in engines of every kind.

    Attributes:
        has_ratio_rule: the sampler verifies by it.
    """

    has_ratio_rule: ClassVar[bool] = True

    @pytest.fixture
    def asks(self) -> list[Ask]:
        """Texts of every length around a window, blocks and pairs; whatever changes a draw."""
        return self.once("asks", _asks)

    @pytest.fixture
    def plain(
        self, model: TextModel, make_engine: MakeDraftingEngine, asks: list[Ask]
    ) -> list[Answer]:
        """What decoding without drafts gives."""
        return self.once(
            ("plain", id(model)), lambda: make_engine(model, EngineShape(**_SHAPE)).answer(asks)
        )

    @pytest.fixture
    def texts(self, asks: list[Ask], plain: list[Answer]) -> Texts:
        """Prompts and their answers."""
        return [
            (*ask.prompt, *answer.done.token_ids) for ask, answer in zip(asks, plain, strict=True)
        ]

    @pytest.mark.parametrize("is_asynchronous", [False, True], ids=["lockstep", "asynchronous"])
    @pytest.mark.parametrize("name", ["mostly right", "mostly wrong", "block", "ngram"])
    def test_the_match_rule_gives_every_bit_of_decoding_without_drafts(
        self,
        model: TextModel,
        make_engine: MakeDraftingEngine,
        asks: list[Ask],
        plain: list[Answer],
        texts: Texts,
        name: str,
        is_asynchronous: bool,
    ) -> None:
        budget = RandomBudget(7)
        engine = make_engine(
            model,
            EngineShape(**_SHAPE, is_asynchronous=is_asynchronous),
            drafter=_drafter_of(name, texts),
            planner=budget,
        )
        _assert_same(engine.answer(asks), plain)
        engine.close()
        if name.startswith("mostly"):
            assert set(budget.by_count) >= set(range(4))

    @pytest.mark.parametrize("drafts", [1, 2, 3, 5, 8])
    def test_any_number_of_drafts_gives_the_same(
        self,
        model: TextModel,
        make_engine: MakeDraftingEngine,
        asks: list[Ask],
        plain: list[Answer],
        texts: Texts,
        drafts: int,
    ) -> None:
        """8 is more than the draft network gives, so rings are longer."""
        shape = EngineShape(**{**_SHAPE, "max_rows": 144}, drafts=drafts, is_asynchronous=True)
        engine = make_engine(model, shape, drafter=KnowingDrafter(texts))
        _assert_same(engine.answer(asks), plain)
        engine.close()

    @pytest.mark.parametrize(
        "room",
        [
            {"blocks": 14, "snapshots": 3, "longest": 128},
            {"mixes": False},
            {"max_rows": 24, "max_sequences": 4},
            {"shares": False},
            {"recovery": "bounded"},
        ],
        ids=["few blocks", "kinds take turns", "short steps", "nothing shared", "bounded"],
    )
    @pytest.mark.parametrize("is_asynchronous", [False, True], ids=["lockstep", "asynchronous"])
    def test_any_room_gives_the_same(
        self,
        model: TextModel,
        make_engine: MakeDraftingEngine,
        asks: list[Ask],
        plain: list[Answer],
        texts: Texts,
        room: dict[str, Any],
        is_asynchronous: bool,
    ) -> None:
        """Sequences lose their blocks, wait for each other's prompts, and resume what is cached."""
        shape = EngineShape(**{**_SHAPE, **room}, is_asynchronous=is_asynchronous)
        engine = make_engine(model, shape, drafter=KnowingDrafter(texts), planner=RandomBudget(3))
        _assert_same(engine.answer(asks), plain)
        assert engine.batch.preemptions > 0 or "blocks" not in room
        engine.close()

    @pytest.mark.parametrize("is_asynchronous", [False, True], ids=["lockstep", "asynchronous"])
    def test_states_and_blocks_that_are_kept_while_drafting_are_those_of_the_text(
        self,
        model: TextModel,
        make_engine: MakeDraftingEngine,
        asks: list[Ask],
        texts: Texts,
        is_asynchronous: bool,
    ) -> None:
        """A second turn behind each answer resumes what the first one left.

        Without anything shared it is computed from its first token on.
        """
        following = [
            Ask(prompt=[*text, 3, 1], params=SamplingParams(max_tokens=6, temperature=0))
            for text in texts
        ]
        fresh = make_engine(model, EngineShape(**_SHAPE, shares=False)).answer(following)
        shape = {**_SHAPE, "snapshots": 128, "blocks": 400}
        engine = make_engine(
            model,
            EngineShape(**shape, is_asynchronous=is_asynchronous),
            drafter=KnowingDrafter(texts),
            planner=RandomBudget(5),
        )
        engine.answer(asks)
        resumed = engine.answer(following)
        engine.close()
        for one, other, ask in zip(resumed, fresh, asks, strict=True):
            assert one.done.token_ids == other.done.token_ids
            assert_same_bits(one.logits_RV, other.logits_RV)
            # Whole blocks of the first turn, behind its prompt as well.
            wanted = (len(ask.prompt) + _TOKENS - 1) // 16 * 16
            assert one.done.usage.cached_tokens >= wanted - 16
        assert sum(one.done.usage.cached_tokens for one in resumed) > 35 * 16
        assert not any(one.done.usage.replayed_tokens for one in resumed)

    @pytest.mark.parametrize("is_asynchronous", [False, True], ids=["lockstep", "asynchronous"])
    @pytest.mark.parametrize("name", ["mostly right", "block"])
    def test_a_greedy_answer_is_the_same_under_the_ratio_rule(
        self,
        model: TextModel,
        make_engine: MakeDraftingEngine,
        asks: list[Ask],
        plain: list[Answer],
        texts: Texts,
        name: str,
        is_asynchronous: bool,
    ) -> None:
        if not self.has_ratio_rule:
            pytest.skip("the sampler has no ratio rule; one that plans it runs this")
        greedy = [number for number, ask in enumerate(asks) if not ask.params.temperature]
        budget = RandomBudget(9)
        engine = make_engine(
            model,
            EngineShape(**_SHAPE, is_asynchronous=is_asynchronous, rule="ratio"),
            drafter=_drafter_of(name, texts),
            planner=budget,
        )
        answers = engine.answer([asks[number] for number in greedy])
        engine.close()
        _assert_same(answers, [plain[number] for number in greedy])
        assert budget.verified > 50

    def test_samples_of_one_prompt_are_those_without_drafts(
        self, model: TextModel, make_engine: MakeDraftingEngine
    ) -> None:
        """They start from a fork of the first one's prompt; the drafter has to know its tokens."""
        params = SamplingParams(max_tokens=20, temperature=1, seed=4, n=3)
        asks = [Ask(prompt=[5, 6, 7] * 9, params=params)]
        want = make_engine(model, EngineShape(**_SHAPE)).answer(asks)
        texts = [(*asks[0].prompt, *one.done.token_ids) for one in want]
        for is_asynchronous in (False, True):
            budget = RandomBudget(1)
            engine = make_engine(
                model,
                EngineShape(**_SHAPE, is_asynchronous=is_asynchronous),
                drafter=KnowingDrafter(texts, right_share=1, none_share=0),
                planner=budget,
            )
            _assert_same(engine.answer(asks), want)
            engine.close()
            assert budget.accepted == budget.verified > 20


def _asks() -> list[Ask]:
    kinds: list[dict[str, Any]] = [
        {"temperature": 0},
        {"temperature": 1, "top_p": 0.9},
        {"temperature": 1, "repetition_penalty": 1.2, "logprobs": 2},
        {"temperature": 0, "frequency_penalty": 0.3, "presence_penalty": 0.1},
        {"temperature": 0.8, "min_tokens": 7, "logit_bias": {7: 3.0}},
    ]
    return [
        Ask(
            prompt=[(7 * place + length) % 250 for place in range(length)],
            params=SamplingParams(**{"max_tokens": _TOKENS, "seed": length, **kinds[length % 5]}),
        )
        for length in range(1, 36)
    ]


def _drafter_of(name: str, texts: Texts) -> Drafter:
    if name == "block":
        return BlockDrafter()
    if name == "ngram":
        return NgramDrafter(NgramOptions(shortest=1))
    return KnowingDrafter(texts, right_share={"mostly right": 0.8, "mostly wrong": 0.3}[name])


def _assert_same(got: Sequence[Answer], want: Sequence[Answer]) -> None:
    for one, other in zip(got, want, strict=True):
        assert one.done.token_ids == other.done.token_ids
        assert one.done.logprobs == other.done.logprobs
        assert one.done.finish_reason == other.done.finish_reason
        assert_same_bits(one.logits_RV, other.logits_RV)
