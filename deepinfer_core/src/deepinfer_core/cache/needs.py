"""What does a model want to keep between steps, and in which number formats?"""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["CacheFormats", "CacheNeeds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheNeeds:
    """What a model keeps between steps.

    Attributes:
        window_tokens: keys that a row sees in its own window, itself included.
        head_width: channels of window keys and of compressed entries.
        index_width: channels of index keys.
        encoder_layers: layers whose rings are stored with a prefix: 0 up to this, exclusive.
        layers: layers with a ring, without the drafter's.
        draft_layers: layers of the drafter.
        entry_ratios: for each layer that owns compressed entries, the tokens of an entry.
        index_owners: layers that own index keys; each owns entries as well.
    """

    window_tokens: int
    head_width: int
    index_width: int
    encoder_layers: int
    layers: int
    draft_layers: int
    entry_ratios: Mapping[int, int]
    index_owners: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFormats:
    """The number format of each kind of row.

    Attributes:
        window: window and drafter keys.
        entry: compressed entries.
        index: index keys.
        raw: gates and values that wait for the second token of their group.
    """

    window: str
    entry: str
    index: str
    raw: str
