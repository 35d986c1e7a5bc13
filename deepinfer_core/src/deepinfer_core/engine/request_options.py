"""How urgent is a request, how long may it take, and with whom may it share what was computed?

Nothing here changes a token.
"""

from __future__ import annotations

from dataclasses import dataclass

from deepinfer_core.engine.checks import check_integer, check_number, shown
from deepinfer_core.errors import RequestError
from deepinfer_core.interfaces.kv_store import check_word

__all__ = ["DEFAULT_OPTIONS", "RequestOptions"]

_HIGHEST_PRIORITY = 16
_LONGEST_SALT = 256
"""Characters; a name of a key and a user fit, and nobody fills the memory with salts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """How one request is treated.

    Attributes:
        priority: -16 to 16; each step moves it forward as if it had arrived earlier by
            ``engine.priority_boost_s``.
        timeout_s: seconds from its arrival after which it ends with ``DeadlineExceeded``; None: no
            limit.
        cache_salt: at most 256 characters; only requests of equal salt share cached prefixes, so
            that nobody learns from the time an answer takes what others asked.
        retention: class of traffic, which decides for how long a store keeps what was computed; one
            of ``engine.kv_store.classes``.

    Raises:
        RequestError: a value is of another type or out of range; the message names the field.
    """

    priority: int = 0
    timeout_s: float | None = None
    cache_salt: str = ""
    retention: str = "agent"

    def __post_init__(self) -> None:
        """Check every field and bring numbers to one type; see the class for what is raised."""
        check_integer("priority", self.priority, -_HIGHEST_PRIORITY, _HIGHEST_PRIORITY)
        object.__setattr__(self, "priority", int(self.priority))
        if self.timeout_s is not None:
            wanted = "a number of seconds above 0, or None"
            check_number("timeout_s", self.timeout_s, wanted, lambda x: x > 0)
            object.__setattr__(self, "timeout_s", float(self.timeout_s))
        if not _is_salt(self.cache_salt):
            raise RequestError(
                f"cache_salt is {shown(self.cache_salt)}",
                hint=f"cache_salt must be a text of at most {_LONGEST_SALT} characters",
            )
        if not _is_class(self.retention):
            raise RequestError(
                f"retention is {shown(self.retention)}",
                hint="retention is a word of at most 16 lower case characters, such as agent",
            )


def _is_class(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        check_word("retention", value)
    except ValueError:
        return False
    return True


def _is_salt(value: object) -> bool:
    if not isinstance(value, str) or len(value) > _LONGEST_SALT:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair is no text
        return False
    return True


DEFAULT_OPTIONS = RequestOptions()
"""What a request has whose caller says nothing."""
