"""Seeds of several answers to one request."""

import pytest
from deepinfer_core.engine.sample_seeds import sample_seed


@pytest.mark.parametrize("seed", [0, 1, 7, (1 << 64) - 1])
def test_the_first_answer_has_the_seed_of_the_request(seed: int) -> None:
    assert sample_seed(seed, 0) == seed


def test_the_others_have_what_splitmix64_gives_from_that_seed() -> None:
    # The first outputs of the public generator for the seeds 0 and 1234567.
    assert [sample_seed(0, n) for n in (1, 2, 3)] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]
    assert sample_seed(1234567, 1) == 6457827717110365317


def test_neighbouring_seeds_share_no_answers() -> None:
    seeds = [sample_seed(seed, n) for seed in range(-50 % (1 << 64), 1 << 64) for n in range(20)]
    seeds += [sample_seed(seed, n) for seed in range(50) for n in range(20)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 1 << 64 for seed in seeds)
