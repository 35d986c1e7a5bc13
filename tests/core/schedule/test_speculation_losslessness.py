"""Whether planning changes the law of the text: exact probabilities, every outcome enumerated.

One or two sequences, two drafts a block, two tokens. The model says A with 0.7 and B with 0.3 at
every position, the drafter 0.5 each, so a draft is accepted with 0.8 in the mean. The second
confidence is 0.9 after a draft A and 0 after B. Steps run at 1, 0.5 and 0.45 a second for 1, 2 and
3 rows. The ratio rule accepts a draft d with min(1, p(d) / g(d)) and draws from what is left of p
over g if it does not.

Source: the counter-example of the DSpark paper.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import product
from math import prod

import pytest
from deepinfer_core.interfaces.draft_planner import DraftView
from deepinfer_core.schedule.speculation import budget_rates, choose_total, split, survival
from deepinfer_core.schedule.speculation_costs import CostCurve, StepCosts

MODEL = {"A": Fraction(7, 10), "B": Fraction(3, 10)}
DRAFTER = {"A": Fraction(1, 2), "B": Fraction(1, 2)}
LEFT_OVER = {"A": Fraction(1), "B": Fraction(0)}
"""max(p - g, 0), normalised."""
COSTS = StepCosts(curve=CostCurve(rows=(1, 2, 3), milliseconds=(1.0, 2.0, 1 / 0.45)))
Block = str
Rates = tuple[float, ...]
Known = tuple[Rates | None, ...]
State = tuple[tuple[str, ...], Known]
Plan = Callable[[Known, Known], tuple[int, ...]]


def planned(views: Sequence[DraftView]) -> tuple[int, ...]:
    return split(views, choose_total([budget_rates(view) for view in views], COSTS).rows)


def rates_of(block: Block) -> Rates:
    return survival((0.8, 0.9 if block[0] == "A" else 0.0))


def blocks() -> Iterator[tuple[Block, Fraction]]:
    for first, second in product("AB", repeat=2):
        yield first + second, DRAFTER[first] * DRAFTER[second]


def emitted(block: Block, rows: int) -> Iterator[tuple[str, Fraction]]:
    """Texts that a step of ``rows`` rows emits, with their probabilities."""
    kept, reach = "", Fraction(1)
    for draft in block[: rows - 1]:
        accept = min(Fraction(1), MODEL[draft] / DRAFTER[draft])
        for token in "AB":
            yield kept + token, reach * (1 - accept) * LEFT_OVER[token]
        kept, reach = kept + draft, reach * accept
    for token in "AB":
        yield kept + token, reach * MODEL[token]


def law(plan: Plan, sequences: int, tokens: int) -> dict[tuple[str, ...], Fraction]:
    """The joint law of the sequences' first tokens when every step plans with ``plan``."""
    nothing: State = (("",) * sequences, (None,) * sequences)
    now = {nothing: Fraction(1)}
    found: dict[tuple[str, ...], Fraction] = defaultdict(Fraction)
    while now:
        then: dict[State, Fraction] = defaultdict(Fraction)
        for (texts, before), chance in now.items():
            for after, share in step(plan, texts, before):
                then[after] += chance * share
        now = {}
        for (texts, before), chance in then.items():
            if min(map(len, texts)) >= tokens:
                found[tuple(text[:tokens] for text in texts)] += chance
            else:
                now[texts, before] = chance
    return {texts: chance for texts, chance in found.items() if chance}


def step(plan: Plan, texts: tuple[str, ...], before: Known) -> Iterator[tuple[State, Fraction]]:
    """What one step makes of all sequences."""
    for drawn in product(blocks(), repeat=len(texts)):
        rates = tuple(rates_of(block) for block, _ in drawn)
        rows = plan(before, rates)
        ends = [emitted(block, count) for (block, _), count in zip(drawn, rows, strict=True)]
        for mores in product(*map(list, ends)):
            chance = prod((*(c for _, c in drawn), *(c for _, c in mores)), start=Fraction(1))
            after = tuple(text + more for text, (more, _) in zip(texts, mores, strict=True))
            yield (after, rates), chance


def model_law(sequences: int, tokens: int) -> dict[tuple[str, ...], Fraction]:
    found = {}
    for letters in product("AB", repeat=sequences * tokens):
        text = "".join(letters)
        texts = tuple(text[start : start + tokens] for start in range(0, len(text), tokens))
        found[texts] = prod((MODEL[letter] for letter in text), start=Fraction(1))
    return found


def looking_at_its_own_block(before: Known, current: Known) -> tuple[int, ...]:
    return planned([DraftView(2, newest=each, before=each) for each in current])


def as_the_engine_does(before: Known, current: Known) -> tuple[int, ...]:
    pairs = zip(before, current, strict=True)
    return planned([DraftView(2, newest=now, before=old) for old, now in pairs])


def while_a_step_is_in_flight(before: Known, current: Known) -> tuple[int, ...]:
    return planned([DraftView(2, newest=each, is_current=False) for each in before])


def sharing_three_drafts(before: Known, current: Known) -> tuple[int, ...]:
    """A fixed total, so that the split alone looks at the current blocks."""
    return split([DraftView(2, newest=each) for each in current], len(current) + 3)


def test_the_counter_example_verifies_two_drafts_after_a_and_none_after_b() -> None:
    plans = {first: looking_at_its_own_block((None,), (rates_of(first + "A"),)) for first in "AB"}
    assert plans == {"A": (3,), "B": (1,)}


def test_looking_at_its_own_block_would_change_the_law() -> None:
    assert law(looking_at_its_own_block, 1, 1)["A",] == Fraction(85, 100)


@pytest.mark.parametrize("plan", [as_the_engine_does, while_a_step_is_in_flight])
@pytest.mark.parametrize(("sequences", "tokens"), [(1, 1), (1, 2), (1, 3), (1, 4), (2, 2)])
def test_planning_with_earlier_blocks_leaves_the_law_as_it_is(
    plan: Plan, sequences: int, tokens: int
) -> None:
    assert law(plan, sequences, tokens) == model_law(sequences, tokens)


def test_splitting_by_the_current_blocks_leaves_the_law_as_it_is() -> None:
    assert law(sharing_three_drafts, 2, 2) == model_law(2, 2)


def test_that_split_does_depend_on_the_current_blocks() -> None:
    assert sharing_three_drafts((), (rates_of("AA"), rates_of("BA"))) == (3, 2)
    assert sharing_three_drafts((), (rates_of("BA"), rates_of("AA"))) == (2, 3)


def test_the_plans_of_these_tests_do_depend_on_the_earlier_block() -> None:
    plans = {
        first: as_the_engine_does((rates_of(first + "A"),), (rates_of("BA"),)) for first in "AB"
    }
    assert plans == {"A": (3,), "B": (1,)}
