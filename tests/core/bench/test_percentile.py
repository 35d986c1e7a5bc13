"""Are percentiles those of the nearest rank?"""

import pytest
from deepinfer_core.bench.percentile import percentile


@pytest.mark.parametrize(
    ("count", "percent", "expected"),
    [
        (1, 1, 1), (1, 99, 1), (2, 50, 1), (2, 51, 2), (3, 50, 2), (10, 90, 9), (10, 91, 10),
        (100, 99, 99), (100, 100, 100), (101, 99, 100), (99, 99, 99),
    ],
)  # fmt: skip
def test_a_percentile_is_the_value_of_the_nearest_rank(
    count: int, percent: int, expected: int
) -> None:
    assert percentile([float(n) for n in range(count, 0, -1)], percent) == expected
