"""From which beginnings does the model write texts of its own?

The drafter learns on what the finished backbone writes. Beginnings come from training documents
(openings of texts, conversations up to the assistant's turn); held-out documents give the
beginnings on which drafts are judged.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

__all__ = ["MAX_PROMPT_TOKENS", "write_prompts"]

MAX_PROMPT_TOKENS = 200
_COUNTS = {
    "tinystories": 2000, "requests": 900, "story_chat": 300, "books": 300, "tales": 100,
    "words": 120, "facts": 60, "sums": 60, "json": 120, "mixed": 60, "talk": 40,
}  # fmt: skip
_ASSISTANT = 4080


def _beginning(rng: random.Random, ids: list[int], is_chat: bool, longest: int) -> list[int]:
    if not is_chat:
        return ids[: 1 + rng.randint(3, longest)]
    last = max(i for i, t in enumerate(ids) if t == _ASSISTANT)
    return ids[: last + 2]  # the token after it opens or closes the reasoning


def write_prompts(
    file: Path,
    train: list[tuple[str, bool, list[int]]],
    valid: list[tuple[str, bool, list[int]]],
) -> None:
    """Write ``tokens`` [P, MAX_PROMPT_TOKENS], ``length``, ``held_out`` and ``story``.

    Args:
        file: an ``.npz`` file.
        train: (source, is a conversation, ids) of training documents.
        valid: the same of held-out documents; only stories and requests for stories are used.
    """
    rng = random.Random(7)
    chosen: list[tuple[list[int], bool, bool]] = []
    for source, count in _COUNTS.items():
        mine = [x for x in train if x[0] == source]
        for _, is_chat, ids in rng.sample(mine, min(count, len(mine))):
            is_story = source in ("tinystories", "requests", "story_chat")
            chosen.append((_beginning(rng, ids, is_chat, 24), False, is_story))
    for source, is_chat, ids in valid:
        if source in ("tinystories", "story_chat"):
            chosen.append((_beginning(rng, ids, is_chat, 16), True, True))
    chosen = [c for c in chosen if len(c[0]) <= MAX_PROMPT_TOKENS]
    tokens = np.zeros((len(chosen), MAX_PROMPT_TOKENS), dtype=np.int16)
    for row, (ids, _, _) in zip(tokens, chosen, strict=True):
        row[: len(ids)] = ids
    np.savez(
        file,
        tokens=tokens,
        length=np.array([len(c[0]) for c in chosen]),
        held_out=np.array([c[1] for c in chosen]),
        story=np.array([c[2] for c in chosen]),
    )
