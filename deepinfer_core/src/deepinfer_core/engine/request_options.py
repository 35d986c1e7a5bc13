"""How is a request treated beside others?"""

from dataclasses import dataclass

__all__ = ["RequestOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """placeholder: replaced by branch asyncllm."""

    priority: int = 0
    timeout_s: float | None = None
    cache_salt: str = ""
