"""Which groups does each tier take, and can it be used for them?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from deepinfer_core.errors import ConfigError
from deepinfer_core.interfaces.kv_store import BlockGroup, KvStore
from deepinfer_core.stores.calls import Tally
from deepinfer_core.stores.late_uses import LateUses
from deepinfer_core.stores.tiered.mover import Mover

__all__ = ["OpenTier", "Tier", "open_tiers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One of the stores.

    Attributes:
        name: of its component.
        store: not open; of this tier alone.
        groups: names of the groups that it takes; empty: all that it may.
    """

    name: str
    store: KvStore
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTier:
    """A tier that takes some group.

    Attributes:
        title: how it is called in messages.
        place: in the options of the store.
        store: open.
        mover: brings blocks into it.
        late_uses: that it is yet to be told of.
        given: what became of blocks that callers asked it for or gave it; moving them is not here.
    """

    title: str
    place: str
    store: KvStore
    mover: Mover
    late_uses: LateUses
    given: Tally = field(default_factory=Tally)


def open_tiers(
    tiers: Sequence[Tier], groups: Sequence[BlockGroup], pending_bytes: int
) -> tuple[OpenTier, ...]:
    """Open each tier for what it takes; one that takes nothing stays closed.

    Raises:
        ConfigError: a tier cannot be used, names no group that there is, or takes states and
            outlives the process; or nobody takes a group.
    """
    wanted = [_taken(number, tier, groups) for number, tier in enumerate(tiers)]
    for group in groups:
        if not any(group in some for some in wanted):
            raise ConfigError(
                f"no tier takes the group {group.name}",
                hint="states need a tier in memory; see which groups the tiers name",
            )
    opened: list[OpenTier] = []
    try:
        for number, (tier, some) in enumerate(zip(tiers, wanted, strict=True)):
            if some:
                _open(number, tier, some)
                opened.append(
                    OpenTier(
                        title=_title(number, tier),
                        place=f"tiers.{number}",
                        store=tier.store,
                        mover=Mover(tier.store, pending_bytes),
                        late_uses=LateUses(),
                    )
                )
    except ConfigError:
        for one in opened:
            one.mover.close(0.0)
            one.store.close()
        raise
    return tuple(opened)


def _open(number: int, tier: Tier, groups: Sequence[BlockGroup]) -> None:
    try:
        tier.store.open(groups)
    except ConfigError as error:
        raise ConfigError(f"{_title(number, tier)}: {error.message}", hint=error.hint) from error


def _taken(number: int, tier: Tier, groups: Sequence[BlockGroup]) -> list[BlockGroup]:
    named = [group for group in groups if not tier.groups or group.name in tier.groups]
    if not named:
        raise ConfigError(
            f"{_title(number, tier)} takes {', '.join(tier.groups)},"
            f" found the groups {', '.join(group.name for group in groups)}",
            hint="leave groups out: a tier then takes all that it may",
        )
    if not tier.store.capabilities.is_persistent:
        return named
    states = [group.name for group in named if group.reuse == "last"]
    if states and tier.groups:
        raise ConfigError(
            f"{_title(number, tier)} takes {', '.join(states)}, and outlives the process:"
            " states are kept in memory only",
            hint="leave them out of groups, and put a tier in memory in front",
        )
    return [group for group in named if group.name not in states]


def _title(number: int, tier: Tier) -> str:
    return f"tier {number} ({tier.name})"
