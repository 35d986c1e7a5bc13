"""What else holds of answers whose drafts were verified, and what if a drafter fails?

``testing.sweeps.drafts`` compares answers with and without drafts.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.block_drafter import BlockDrafter
from deepinfer_core.testing.knowing_drafter import KnowingDrafter
from deepinfer_core.testing.small_engines import Answer, Ask, EngineShape, slim_config, small_engine
from deepinfer_core.testing.tiny_model import tiny_model

Texts = list[tuple[int, ...]]

BLOCK = WINDOW = 16
SHAPE = {
    "block_tokens": BLOCK,
    "blocks": 160,
    "max_rows": 128,
    "max_sequences": 16,
    "longest": 200,
    "snapshots": 16,
}


@pytest.fixture(scope="module")
def model() -> TextModel:
    return tiny_model(Numerics(), config=slim_config(WINDOW))


@pytest.fixture(scope="module")
def asks() -> list[Ask]:
    """Texts of every length around a window, blocks and pairs; whatever changes a draw."""
    kinds = [
        {"temperature": 0},
        {"temperature": 1, "top_p": 0.9},
        {"temperature": 1, "repetition_penalty": 1.2, "logprobs": 2},
        {"temperature": 0, "frequency_penalty": 0.3, "presence_penalty": 0.1},
        {"temperature": 0.8, "min_tokens": 7, "logit_bias": {7: 3.0}},
    ]
    return [
        Ask(
            prompt=[(7 * place + length) % 250 for place in range(length)],
            params=SamplingParams(**{"max_tokens": 25, "seed": length, **kinds[length % 5]}),
        )
        for length in range(1, 36)
    ]


@pytest.fixture(scope="module")
def plain(model: TextModel, asks: list[Ask]) -> list[Answer]:
    """What decoding without drafts gives."""
    return small_engine(model, EngineShape(**SHAPE)).answer(asks)


@pytest.fixture(scope="module")
def texts(asks: list[Ask], plain: list[Answer]) -> list[tuple[int, ...]]:
    return [(*ask.prompt, *answer.done.token_ids) for ask, answer in zip(asks, plain, strict=True)]


def assert_same(got: Sequence[Answer], want: Sequence[Answer]) -> None:
    for one, other in zip(got, want, strict=True):
        assert one.done.token_ids == other.done.token_ids
        assert one.done.logprobs == other.done.logprobs
        assert one.done.finish_reason == other.done.finish_reason
        assert_same_bits(one.logits_RV, other.logits_RV)


def test_prompts_are_scored_the_same(model: TextModel) -> None:
    """Their rows share steps with those of drafts."""
    scored = SamplingParams(max_tokens=12, temperature=0, prompt_logprobs=2)
    plain = SamplingParams(max_tokens=30, temperature=0)
    prompts = [[3 * place % 250 for place in range(length)] for length in (4, 20, 33)]
    asks = [Ask(prompt=one, params=params) for one in prompts for params in (plain, scored)]
    shape = {**SHAPE, "max_rows": 96}
    want = small_engine(model, EngineShape(**shape)).answer(asks)
    texts = [(*ask.prompt, *one.done.token_ids) for ask, one in zip(asks, want, strict=True)]
    engine = small_engine(
        model, EngineShape(**shape, is_asynchronous=True), drafter=KnowingDrafter(texts)
    )
    got = engine.answer(asks)
    engine.close()
    assert_same(got, want)
    assert [one.done.prompt_logprobs for one in got] == [one.done.prompt_logprobs for one in want]


class Noting(BlockDrafter):
    """Remembers its drafts."""

    def __init__(self) -> None:
        super().__init__()
        self.drafts: set[int] = set()

    def propose(self, *arguments: Any) -> Any:
        found = super().propose(*arguments)
        self.drafts |= set(found.token_Qn[0].tolist())
        return found


@pytest.mark.parametrize("rule", ["match", "ratio"])
@pytest.mark.parametrize("temperature", [0, 1])
def test_w10_banned_tokens_are_not_drafted(model: TextModel, rule: Any, temperature: float) -> None:
    allowed = {3, 5, 80, 81}
    drafter = Noting()
    engine = small_engine(model, EngineShape(**SHAPE, rule=rule), drafter=drafter)
    banned = tuple(sorted(set(range(288)) - allowed))
    engine.rules = replace(engine.rules, banned_ids=banned)
    params = SamplingParams(max_tokens=30, temperature=temperature, seed=1)
    [answer] = engine.answer([Ask(prompt=[5, 6, 7], params=params)])
    assert set(answer.done.token_ids) <= allowed
    assert drafter.drafts <= allowed


class Raising(KnowingDrafter):
    """Breaks in its third round."""

    def propose(self, *arguments: Any) -> Any:
        found = super().propose(*arguments)
        if self.rounds == 3:
            raise RuntimeError("broken on purpose")
        return found


@pytest.mark.parametrize("is_asynchronous", [False, True], ids=["lockstep", "asynchronous"])
def test_a_round_that_fails_ends_the_requests_of_its_step_alone(
    model: TextModel, asks: list[Ask], plain: list[Answer], texts: Texts, is_asynchronous: bool
) -> None:
    shape = EngineShape(**SHAPE, is_asynchronous=is_asynchronous)
    engine = small_engine(model, shape, drafter=Raising(texts))
    for index, ask in enumerate(asks[:3]):
        engine.submit(index, ask.prompt, ask.params)
    errors: list[str] = []
    while len(engine.batch):
        ended = [update.delta.completion for update in engine.step()]
        errors += [str(done.error) for done in ended if done is not None]
        engine.check_integrity()
    assert len(errors) == 3
    assert all("broken on purpose" in error for error in errors)
    assert_same(engine.answer(asks[3:6]), plain[3:6])
    engine.close()


def test_a_drafter_that_gives_no_tokens_or_too_few_is_refused(
    model: TextModel, asks: list[Ask], texts: Texts
) -> None:
    for wrong, said in ((lambda token_Qn: token_Qn + 1000, "gave the drafts"),
                        (lambda token_Qn: token_Qn[:, :2], "was asked for")):  # fmt: skip

        class Wrong(KnowingDrafter):
            def propose(self, *arguments: Any, wrong: Any = wrong) -> Any:
                found = super().propose(*arguments)
                return type(found)(token_Qn=wrong(found.token_Qn))

        engine = small_engine(model, EngineShape(**SHAPE), drafter=Wrong(texts, none_share=0))
        engine.submit(0, asks[4].prompt, asks[4].params)
        updates = [update for _ in range(9) if len(engine.batch) for update in engine.step()]
        [done] = [one.delta.completion for one in updates if one.delta.completion is not None]
        assert said in str(done.error)
