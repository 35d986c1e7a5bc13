"""Do seeds and positions give their published numbers?"""

import pytest
import torch
from deepinfer_core.reference.random_numbers import UNIFORM_BITS, uniform_bits

DRAFT_SHIFT = 1_000_000_007
"""Added to a seed for drafts."""

GOLDEN = """
0 0                       0.88331080821364261 0.94253717446593777 0.29561573205716307 0.00424803619568814
42 1                      0.09153659334626729 0.25004503153099367 0.37494778307002286 0.23683024788599505
42 100                    0.79144079205270834 0.51394200179769967 0.05990559466821244 0.86311860763324688
12345678901234567890 4096 0.10158726761676706 0.22719812038694565 0.45697084831780621 0.42605601768391188
"""  # noqa: E501 - a table
"""Seed, position, the numbers of cases 0 to 2, and the draft's number, with 17 decimals."""


def uniform(seed: int, position: int, case: int) -> float:
    bits = seed % 2**64
    signed = bits - 2**64 if bits >> 63 else bits
    number = uniform_bits(torch.tensor([signed]), torch.tensor([position]), case)
    return int(number) / 2**UNIFORM_BITS


@pytest.mark.parametrize("line", GOLDEN.split("\n")[1:-1])
def test_published_numbers_come_out_to_the_last_digit(line: str):
    seed, position, *published, draft = line.split()
    numbers = [uniform(int(seed), int(position), case) for case in range(3)]
    assert [f"{number:.17f}" for number in numbers] == published
    assert f"{uniform(int(seed) + DRAFT_SHIFT, int(position), 0):.17f}" == draft


def test_numbers_fill_their_bits_and_no_more(generator: torch.Generator):
    seed = torch.randint(-(2**63), 2**63 - 1, (10_000,), generator=generator)
    number = uniform_bits(seed, torch.arange(10_000), 0)
    assert int(number.min()) >= 0
    assert 2**UNIFORM_BITS * 0.999 < int(number.max()) < 2**UNIFORM_BITS


def test_a_number_does_not_depend_on_those_beside_it():
    seed, position = torch.arange(9) - 4, torch.arange(9) * 7
    together = uniform_bits(seed, position, 2)
    for row in range(9):
        assert uniform_bits(seed[row : row + 1], position[row : row + 1], 2) == together[row]


def test_positions_and_cases_share_one_counter():
    # Case 3 of a position would be case 0 of the next: the counter is 3 * position + case.
    assert uniform(5, 10, 3) == uniform(5, 11, 0)
    assert uniform(5, 10, 2) != uniform(5, 11, 0)
