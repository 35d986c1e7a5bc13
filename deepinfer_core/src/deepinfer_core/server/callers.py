"""On whose behalf does this task work?"""

from __future__ import annotations

from contextvars import ContextVar

__all__ = ["CALLER"]

CALLER: ContextVar[str] = ContextVar("deepinfer_caller", default="")
"""Label of the key of the call that is answered; tasks that an answer starts inherit it."""
