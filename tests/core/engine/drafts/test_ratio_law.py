"""Do whole answers keep their law when an engine verifies by the ratio rule?

The probability of an answer is the product of those of its tokens, which the answer itself reports.
"""

from collections import Counter
from math import exp

import torch
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.testing.block_drafter import BlockDrafter
from deepinfer_core.testing.draft_budgets import RandomBudget
from deepinfer_core.testing.small_engines import Ask, EngineShape, slim_config, small_engine
from deepinfer_core.testing.tiny_model import tiny_model

ANSWERS = 2048
ALLOWED = (40, 41, 42)
FEWEST = 8.0
"""Answers that are expected less often than this are counted together."""


def test_answers_of_four_tokens_come_as_often_as_they_should() -> None:
    """Chi-square of 2048 answers of 81, refused at 1e-3; fixed seeds make the result fixed."""
    model = tiny_model(Numerics(), config=slim_config(16))
    shape = EngineShape(
        block_tokens=16, blocks=400, max_rows=384, max_sequences=64, longest=64, snapshots=4,
        is_asynchronous=True, rule="ratio",
    )  # fmt: skip
    budget = RandomBudget(2)
    engine = small_engine(model, shape, drafter=BlockDrafter(), planner=budget)
    params = {"max_tokens": 4, "temperature": 0.7, "logprobs": 0, "allowed_token_ids": ALLOWED}
    asks = [
        Ask(prompt=[5, 6, 7, 8], params=SamplingParams(seed=seed, **params))  # type: ignore[arg-type]
        for seed in range(ANSWERS)
    ]
    answers = engine.answer(asks)
    engine.close()
    want: dict[tuple[int, ...], float] = {}
    for answer in answers:
        assert answer.done.logprobs is not None
        law = exp(sum(one.processed_logprob for one in answer.done.logprobs))
        want[answer.done.token_ids] = ANSWERS * law
    count = Counter(answer.done.token_ids for answer in answers)
    often = [tokens for tokens, expected in want.items() if expected >= FEWEST]
    pairs = [(count[tokens], want[tokens]) for tokens in often]
    pairs.append((ANSWERS - sum(one for one, _ in pairs), ANSWERS - sum(two for _, two in pairs)))
    chi_square = torch.tensor(sum((seen - due) ** 2 / due for seen, due in pairs))
    freedom = torch.tensor(float(len(pairs) - 1))
    assert len(often) > 15
    assert 0.2 < budget.accepted / budget.verified < 0.9
    assert float(torch.special.gammaincc(freedom / 2, chi_square / 2)) > 1e-3
