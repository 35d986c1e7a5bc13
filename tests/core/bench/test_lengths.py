"""Are distributions of lengths read and drawn as written?"""

import random

import pytest
from deepinfer_core.bench.lengths import parse_lengths
from deepinfer_core.errors import ConfigError
from deepinfer_core.testing.seeds import seed_of


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("1", ((1, 1),)),
        ("128", ((128, 128),)),
        ("64..256", ((64, 256),)),
        ("7..7", ((7, 7),)),
        ("32, 64..256", ((32, 32), (64, 256))),
    ],
)
def test_a_distribution_is_read_as_written(text: str, ranges: tuple[tuple[int, int], ...]) -> None:
    found = parse_lengths(text, "--input-len")
    assert found.ranges == ranges
    assert found.highest_tokens == max(high for _, high in ranges)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "-5",
        "1.5",
        "abc",
        "8..4",
        "0..4",
        "4..",
        "..4",
        "1,,2",
        "1...2",
        "١٢",
        "3000000000",
    ],
)
def test_anything_else_is_refused_with_the_name_of_the_option(text: str) -> None:
    with pytest.raises(ConfigError, match="--input-len is"):
        parse_lengths(text, "--input-len")


def test_every_length_of_every_part_is_drawn_and_no_other(request: pytest.FixtureRequest) -> None:
    source = random.Random(seed_of(request))
    lengths = parse_lengths("3,7..9", "--input-len")
    assert {lengths.draw(source) for _ in range(200)} == {3, 7, 8, 9}
