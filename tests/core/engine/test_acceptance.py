"""Are drafts accepted up to the first that was not drawn, and no further?"""

import pytest
from deepinfer_core.engine.acceptance import accept_matching


@pytest.mark.parametrize(
    ("drafts", "drawn", "count"),
    [
        ([], [], 0),
        ([], [7], 0),
        ([4], [5, 6], 0),
        ([4], [4, 6], 1),
        ([4, 5, 6], [4, 9, 6, 1], 1),
        ([4, 5, 6], [4, 5, 9, 1], 2),
        ([4, 5, 6], [4, 5, 6, 1], 3),
        ([4, 5, 6], [4, 5], 2),
    ],
)
def test_drafts_are_accepted_up_to_the_first_difference(
    drafts: list[int], drawn: list[int], count: int
) -> None:
    assert accept_matching(drafts, drawn) == count
