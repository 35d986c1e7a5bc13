"""What do the tokens before a row say about the token that comes next?

Pure functions of the tokens, so that recomputing a sequence, or checking several guesses of one at
once, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["last_of_bad_sequences", "seen_tokens"]


def seen_tokens(
    prompt: Iterable[int], output: Iterable[int], *, with_prompt: bool
) -> tuple[tuple[int, int], ...]:
    """Each earlier token, and how often it stands in the output.

    Args:
        prompt: token ids.
        output: token ids behind the prompt and before the row.
        with_prompt: list tokens of the prompt too, with 0 if they stand nowhere else.
    """
    counts = dict.fromkeys(prompt, 0) if with_prompt else {}
    for token in output:
        counts[token] = counts.get(token, 0) + 1
    return tuple(counts.items())


def last_of_bad_sequences(
    output: Sequence[int], sequences: Iterable[Sequence[int]]
) -> frozenset[int]:
    """Tokens that would complete a sequence.

    Args:
        output: token ids behind the prompt and before the row.
        sequences: none empty. One of a single token is complete with that token.
    """
    found = set()
    for sequence in sequences:
        *before, last = sequence
        if list(output[max(len(output) - len(before), 0) :]) == before:
            found.add(last)
    return frozenset(found)
