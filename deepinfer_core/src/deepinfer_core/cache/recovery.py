"""How much of a prompt is cached, and from which position on must it be fed?

Entries of the leading blocks are cached, but a row also needs the window keys of the rows before
it, in every layer. They come from a snapshot of the state, or from feeding cached tokens again,
whose rows then leave window keys and write no entries. Layer l sees keys of layer l at ``window -
1`` earlier positions, and each of these depends on as many positions of the layer below. If feeding
starts at r without any keys, a key of layer l is exact from ``r + l * (window - 1)`` on. All that a
row at h sees is exact, therefore, if ``r <= h - layers * (window - 1)``.

``exact`` recovery feeds as much as that takes, unless a snapshot shortens it; the state at h then
has the bits of a run without cache, given arithmetic that does not depend on the batch. ``bounded``
recovery feeds one window again and accepts an approximation; what such a sequence computes must
never be cached.

Pure arithmetic on token counts: no tensors.
"""

from collections.abc import Collection
from typing import Literal, NamedTuple

from deepinfer_core.errors import ConfigError

__all__ = ["Recovery", "Resume", "resume_point"]

Recovery = Literal["exact", "bounded"]


class Resume(NamedTuple):
    """Where a prompt resumes. A named tuple: it is worked out for waiting sequences in every step.

    Attributes:
        cached_tokens: h, leading tokens whose entries are reused, in whole blocks.
        start: first position to feed, at most h; positions up to h write no entries.
        valid_start: first position that has window keys; 0 if all before ``start`` are there.
        restore_at: boundary whose snapshot gives the state at ``start``; None if none is restored.
        is_exact: the state at h has the bits that a run without cache gives it.
    """

    cached_tokens: int
    start: int
    valid_start: int
    restore_at: int | None
    is_exact: bool

    @property
    def replayed_tokens(self) -> int:
        """Cached tokens that are fed again."""
        return self.cached_tokens - self.start


def resume_point(
    *,
    cached_blocks: int,
    snapshots: Collection[int],
    limit_tokens: int,
    recovery: Recovery,
    block_tokens: int,
    window_tokens: int,
    layers: int,
) -> Resume:
    """Choose what is reused, and how the window keys come back.

    Blocks alone decide h. A missing snapshot never shortens it; it only makes rows run again.

    Args:
        cached_blocks: leading blocks whose entries are cached.
        snapshots: boundaries in tokens, whole blocks, at which a state can be restored; those
            behind h are passed over.
        limit_tokens: most tokens to reuse, whole blocks or not; below 0 counts as 0.
        recovery: ``exact`` or ``bounded``.
        block_tokens: tokens of a block.
        window_tokens: keys that a row sees in its window, itself included.
        layers: windows on top of each other: the model's layers; one more if a drafter keeps keys
            made of the last layer's output and they shall be exact as well.

    Raises:
        ConfigError: no such recovery.
    """
    if recovery not in ("exact", "bounded"):
        raise ConfigError(
            f'asked for the recovery "{recovery}", found "exact" and "bounded"',
            hint="choose one of them",
        )
    end = block_tokens * max(0, min(cached_blocks, limit_tokens // block_tokens))
    far = max(0, end - layers * (window_tokens - 1)) // block_tokens * block_tokens
    restore_at = max((at for at in snapshots if far <= at <= end), default=None)
    start = far if restore_at is None else restore_at
    if recovery == "bounded" and start < end - window_tokens:
        start = end - window_tokens
        return Resume(end, start, valid_start=start, restore_at=None, is_exact=False)
    valid_start = far if restore_at is None else 0
    return Resume(end, start, valid_start, restore_at, is_exact=True)
