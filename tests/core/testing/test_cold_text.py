"""Does the oracle of the sweeps notice one wrong row, token or count?"""

from dataclasses import replace

import pytest
import torch
from deepinfer_core.cache.recovery import Resume
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.testing.beginnings import ask_forced, check_answer, check_resumed, words
from deepinfer_core.testing.cache_rows import Kept
from deepinfer_core.testing.cached_prefix import CachedPrefix
from deepinfer_core.testing.cold_text import ColdText, cold_text
from deepinfer_core.testing.small_engines import (
    Answer,
    Ask,
    EngineShape,
    SmallEngine,
    slim_config,
    small_engine,
)
from deepinfer_core.testing.tiny_model import tiny_model

LENGTH = 33
"""Odd, so that a group of two is open."""


@pytest.fixture(scope="module")
def cold() -> ColdText:
    return cold_text(tiny_model(Numerics(), config=slim_config(16)), words("oracle", 40))


@pytest.fixture
def engine(cold: ColdText) -> SmallEngine:
    return small_engine(cold.model, EngineShape(blocks=16, snapshots=4))


@pytest.fixture
def answer(cold: ColdText, engine: SmallEngine) -> Answer:
    # The row of the last token is not fed, so this leaves the rows of the prompt.
    [found] = engine.answer([ask_forced(cold, LENGTH, 1)])
    return found


def test_an_undisturbed_answer_passes(cold: ColdText, answer: Answer) -> None:
    check_answer(cold, ask_forced(cold, LENGTH, 1), answer)


def test_every_kind_of_cache_row_is_compared(cold: ColdText, answer: Answer) -> None:
    kinds = {name.rstrip("0123456789 ") for name in answer.kept}
    assert kinds == {"window", "drafter", "raw", "entries", "index keys"}
    for name, (number_R, rows_RD) in answer.kept.items():
        assert len(number_R) == len(rows_RD) > 0
        for row in (0, len(rows_RD) - 1):
            wrong_RD = rows_RD.clone()
            wrong_RD[row, -1] += 1
            with pytest.raises(AssertionError):
                cold.check_kept({**answer.kept, name: Kept(number_R, wrong_RD)})


def test_the_last_bit_of_a_logit_is_compared(cold: ColdText, answer: Answer) -> None:
    wrong_RV = answer.logits_RV.clone()
    wrong_RV[0, 0] = torch.nextafter(wrong_RV[0, 0], torch.tensor(torch.inf))
    with pytest.raises(AssertionError, match="1 of 288 elements differ"):
        check_answer(cold, ask_forced(cold, LENGTH, 1), replace(answer, logits_RV=wrong_RV))


def test_what_was_reused_is_compared(answer: Answer) -> None:
    nothing = Resume(0, 0, 0, None, True)
    check_resumed(answer, nothing)
    for wrong in (nothing._replace(cached_tokens=16), nothing._replace(valid_start=16)):
        with pytest.raises(AssertionError):
            check_resumed(answer, wrong)


def test_a_dropped_block_and_a_dropped_snapshot_are_not_found(
    cold: ColdText, engine: SmallEngine
) -> None:
    asked = Ask(prompt=cold.tokens[:16], params=SamplingParams(max_tokens=1))
    engine.answer([asked, ask_forced(cold, 40 - 1, 1)])
    prefix = CachedPrefix(engine.batch, cold.tokens[:32])
    assert len(prefix.found().block_ids) == 2
    assert prefix.found().snapshots == (16, 32)
    prefix.drop_snapshot(16)
    assert prefix.found().snapshots == (32,)
    prefix.drop_snapshots()
    assert prefix.found().snapshots == ()
    prefix.drop_block(1)
    assert len(prefix.found().block_ids) == 1
    engine.check_integrity()
