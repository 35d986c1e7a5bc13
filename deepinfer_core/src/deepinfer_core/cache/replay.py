"""Which rows of a prompt does the decoder half skip, and from where on does it run?

The decoder half needs a prompt's rows only for window keys, which nothing but the last rows leaves
behind, so it may run on the last ``keep_tokens`` tokens alone. The earliest of these rows see a
truncated window; that is an approximation, and the only one. With as many kept tokens as the prompt
has, results are exact. Which cached tokens are fed again is ``recovery``'s question.

Pure arithmetic on token counts: no tensors.
"""

from dataclasses import dataclass
from typing import Literal

from deepinfer_core.errors import ConfigError

__all__ = ["DecoderTruncation", "removed_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderTruncation:
    """How the decoder half treats the rows in front of a prompt's last ones.

    Attributes:
        mode: ``mask`` runs all rows through the decoder half and hides their window keys;
            ``compact`` takes the rows out. Both give the same bits on the rows that are kept.
        keep_tokens: tokens at the end of a prompt that are kept.
    """

    mode: Literal["mask", "compact"]
    keep_tokens: int

    def keep_from(self, prompt_tokens: int) -> int:
        """First kept position of a prompt; 0 if all of it is kept.

        Args:
            prompt_tokens: of the whole prompt, over all its chunks.
        """
        return max(prompt_tokens - self.keep_tokens, 0)

    def check(self, *, window_tokens: int, max_backtracking: int) -> None:
        """Refuse to keep so little that a row behind the prompt would miss window keys.

        Args:
            window_tokens: keys that a row sees in its window, itself included.
            max_backtracking: rows of a sequence that a step may feed and later take back.

        Raises:
            ConfigError: the mode is unknown, or fewer tokens are kept than both together.
        """
        if self.mode not in ("mask", "compact"):
            raise ConfigError(
                f'asked for the truncation mode "{self.mode}", found "mask" and "compact"',
                hint="choose one of them, or no truncation",
            )
        least = window_tokens + max_backtracking
        if self.keep_tokens < least:
            raise ConfigError(
                f"asked to keep {self.keep_tokens} tokens for the decoder half, found a window of "
                f"{window_tokens} tokens and {max_backtracking} rows of backtracking",
                hint=f"keep at least {least} tokens",
            )


def removed_rows(start: int, rows: int, keep_from: int) -> int:
    """Leading rows of a chunk that ``compact`` takes out of the decoder half.

    One row of each chunk always survives, so that the rest of the step has a row of every sequence;
    if that row is in front of ``keep_from``, it writes nothing and its output means nothing.

    Args:
        start: position of the chunk's first row.
        rows: rows of the chunk, at least 1.
        keep_from: first position that is kept.
    """
    return min(max(keep_from - start, 0), rows - 1)
