"""How many drafts does a verified step keep?

The match rule: a step feeds the last certain token and the drafts behind it, and the ordinary
sampler draws at every row, with the seed of the request and the absolute position of the token. As
long as what is drawn is what was drafted, the next row saw the right history, and its draw is the
one that plain decoding would make. So the emitted tokens do not depend on drafts at all, neither
greedily nor with a seed, whatever bias, penalty or truncation the sampler applies; drafts only
decide how many tokens a step gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

__all__ = ["accept_matching"]


def accept_matching(drafts: Sequence[int], drawn: Sequence[int]) -> int:
    """Count the drafts in front that equal what was drawn.

    Args:
        drafts: token ids that a step fed behind its last certain token.
        drawn: what the sampler drew at the row before each draft, and maybe further; fewer where
            there is nothing to compare with.

    Returns:
        0 up to ``len(drafts)``. The step emits the accepted drafts and the token drawn behind the
        last of them; caches of later rows are fed again.
    """
    pairs = zip(drafts, drawn, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
