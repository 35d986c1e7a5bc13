"""When does a kernel let the next one start before it ends?

The next one's blocks then lie in wait for its end beside it. That saves the start of a kernel, a
microsecond or two, which counts where kernels take a few: with few rows. With many rows kernels
fill the device, and what waits there, or asks for weights, only takes from them.
"""

from typing import Any

import tilelang.language as T

__all__ = ["FEW_ROWS", "let_next_start"]

FEW_ROWS = 48
"""Six rows of a sequence, as verifying drafts takes, are 36 where each goes to six experts."""


@T.macro
def let_next_start(rows: Any) -> None:
    """Let the next kernel start as soon as all blocks of this one have, if there are few rows."""
    if rows <= FEW_ROWS:
        T.pdl_trigger()
