"""Which drafts does prompt lookup find?"""

import pytest
import torch
from deepinfer_core.config.components import NgramOptions
from deepinfer_core.interfaces.drafter import DraftHost, DraftRound
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.reference.ngram import NgramDrafter, build
from pydantic import ValidationError

LONGEST = 40


def drafted(texts: list[list[int]], count: int = 4, **options: int) -> list[list[int]]:
    """Drafts behind texts, whose last tokens are the anchors; junk stands behind each of them."""
    drafter = build(NgramOptions(**options), BuildContext(device="cpu", needs=ModelNeeds()))
    host = DraftHost(
        drafts=count, vocabulary=100, max_sequences=len(texts), max_tokens=LONGEST, rule="match",
        torch_device=torch.device("cpu"),
    )  # fmt: skip
    drafter.attach(host)
    token_SL = torch.full((len(texts) + 1, LONGEST), 7)
    for place, text in enumerate(texts, 1):
        token_SL[place, : len(text)] = torch.tensor(text)
    place_Q = torch.arange(1, len(texts) + 1)
    end_Q = torch.tensor([len(text) for text in texts])
    wanted = DraftRound(
        anchor_token_Q=token_SL[place_Q, end_Q - 1],
        accepted_position_Q=end_Q - 2,
        first_position_Q=torch.zeros_like(end_Q),
        state_slot_Q=place_Q,
        place_Q=place_Q,
        token_SL=token_SL,
    )
    return drafter.propose(wanted, never).token_Qn.tolist()


def never(logits_QV: torch.Tensor, number: int) -> torch.Tensor:
    raise AssertionError("it draws nothing")


NONE = [-1] * 4


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ([1, 2, 3, 4, 5, 6, 1, 2], [3, 4, 5, 6]),
        ([1, 2, 3, 4, 9, 1, 2, 5, 6, 8, 1, 2], [5, 6, 8, 1]),  # the last of two places
        ([3, 1, 2, 4, 5, 6, 9, 1, 2, 8, 3, 1, 2], [4, 5, 6, 9]),  # the longer common end
        ([1, 2, 3, 4, 5], NONE),
        ([2, 3, 4, 2], NONE),  # one token is less than the shortest end
        ([7], NONE),
        ([7, 7], NONE),
        ([5, 5, 5], [5, 5, 5, 5]),  # the text goes on as it does
        ([1, 2, 1, 2, 1, 2], [1, 2, 1, 2]),
        ([1, 2, 3, 1, 2], [3, 1, 2, 3]),
        ([0, 0, 0, 1], NONE),
    ],
)
def test_the_draft_is_what_followed_the_end_of_the_text_before(
    text: list[int], want: list[int]
) -> None:
    assert drafted([text]) == [want]


def test_texts_do_not_see_each_other() -> None:
    texts = [[1, 2, 3, 4, 1, 2], [9, 9, 1, 2], [5, 1, 2, 6, 1, 2]]
    assert drafted(texts) == [drafted([text])[0] for text in texts]


def test_a_shorter_end_can_be_enough() -> None:
    assert drafted([[2, 3, 4, 2]], shortest=1) == [[3, 4, 2, 3]]
    assert drafted([[1, 2, 3, 4, 1, 2]], shortest=3) == [NONE]


def test_no_more_tokens_than_the_longest_end_are_compared() -> None:
    """The first place has three tokens in common, the second two; where two count, it is later."""
    text = [3, 1, 2, 4, 9, 1, 2, 8, 3, 1, 2]
    assert drafted([text], longest=3)[0][0] == 4
    assert drafted([text], longest=2)[0][0] == 8


@pytest.mark.parametrize(("searched", "want"), [(5, NONE), (6, [3, 4, 5, 6])])
def test_a_place_is_found_if_its_end_is_near_enough(searched: int, want: list[int]) -> None:
    """The second token is six places before the last one."""
    assert drafted([[1, 2, 3, 4, 5, 6, 1, 2]], searched_tokens=searched) == [want]


@pytest.mark.parametrize("count", [1, 7, 20])
def test_there_are_as_many_drafts_as_the_engine_wants(count: int) -> None:
    [found] = drafted([[1, 2, 3, 1, 2]], count)
    assert found == ([3, 1, 2] * 7)[:count]


def test_an_end_that_is_shorter_than_the_shortest_is_no_option() -> None:
    with pytest.raises(ValidationError, match="shortest is 5, above longest 4"):
        NgramOptions(shortest=5)


def test_its_capabilities_tell_the_engine_to_keep_tokens() -> None:
    able = NgramDrafter(NgramOptions()).capabilities
    assert (able.law, able.reads_tokens, able.uses_block) == ("one_hot", True, False)
