"""Which children can be used, and are they enough to begin with?"""

from __future__ import annotations

from collections.abc import Sequence

from deepinfer_core.errors import ConfigError
from deepinfer_core.interfaces.kv_store import BlockGroup, KvStore

__all__ = ["open_children"]


def open_children(
    stores: Sequence[tuple[str, KvStore]], groups: Sequence[BlockGroup], spared: int
) -> dict[str, str]:
    """Open all children; some may be missing, and are tried again with each sweep.

    Args:
        stores: by their titles.
        groups: of fragments.
        spared: children that may be missing.

    Returns:
        Why some could not be opened, by their titles.

    Raises:
        ConfigError: more are; says what is wrong with the first.
    """
    problems: list[tuple[str, ConfigError]] = []
    for title, store in stores:
        try:
            store.open(groups)
        except ConfigError as error:
            problems.append((title, error))
    if len(problems) > spared:
        for _, store in stores:
            store.close()
        title, first = problems[0]
        more = f" (and {len(problems) - 1} more children)" if len(problems) > 1 else ""
        raise ConfigError(f"{title}: {first.message}{more}", hint=first.hint) from first
    return {title: error.message for title, error in problems}
