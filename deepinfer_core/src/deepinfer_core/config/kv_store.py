"""How does an engine use the store of blocks that ``components.kv_store`` names?"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from deepinfer_core.config.components import Section
from deepinfer_core.config.server import LONGEST_WAIT_S, one_or_many
from deepinfer_core.interfaces.kv_store import check_word

__all__ = ["KvStoreSettings"]

_MIB = 1 << 20

Seconds = Annotated[float, Field(gt=0, le=LONGEST_WAIT_S)]


def _classes(value: tuple[str, ...]) -> tuple[str, ...]:
    for name in value:
        check_word("classes", name)
    return value


class KvStoreSettings(Section):
    """Use of a store; without one, nothing of this has a meaning.

    Attributes:
        match_timeout_s: for which a request waits to learn how much of it is stored; None takes
            0.005 for a store on this machine, 0.02 for one that asks others.
        fetch_timeout_s: for which it waits until that has come, at most.
        fetch_patience: how many times as long as computing a prefix fetching it may take; 1: the
            quicker way is taken, more spares the device work that it could do for others.
        fetch_bytes: shared memory for what comes.
        write_bytes: shared memory for what goes.
        write_backlog_blocks: finished blocks that may wait to be copied from the device.
        write_step_blocks: blocks that are copied from the device in one step, at most.
        states: keep states as well, in memory, so that a prefix resumes without computing any of it
            again.
        state_bytes: memory for states where the store is not in memory itself.
        state_retention_s: seconds behind its last use after which such a state is dropped.
        classes: classes of traffic that requests may belong to; each must be one of the store's
            ``retention_s``.
    """

    match_timeout_s: Seconds | None = None
    fetch_timeout_s: Seconds = 2.0
    fetch_patience: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    fetch_bytes: int = Field(default=256 * _MIB, ge=1)
    write_bytes: int = Field(default=256 * _MIB, ge=1)
    write_backlog_blocks: int = Field(default=256, ge=1)
    write_step_blocks: int = Field(default=16, ge=1)
    states: bool = True
    state_bytes: int = Field(default=4096 * _MIB, ge=1)
    state_retention_s: Seconds = 180.0
    classes: Annotated[
        tuple[str, ...],
        Field(min_length=1),
        AfterValidator(_classes),
        BeforeValidator(one_or_many),
    ] = ("agent", "chat")
