"""Does a request bring a key, and whose is it?"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping

from deepinfer_core.server.refusals import Refused

__all__ = ["Keys"]


class Keys:
    """The keys that open the server.

    Only digests are kept, and every one of them is compared, so that neither the time of an answer
    nor a picture of the memory tells a key.

    Args:
        keys: key by label; empty: no key is asked for.
    """

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._digests = [(label, _digest(key.encode())) for label, key in keys.items()]

    def __bool__(self) -> bool:
        """Whether keys are asked for."""
        return bool(self._digests)

    def label_of(self, headers: Mapping[bytes, bytes]) -> str:
        """Label of the key that a request brings; empty if none is asked for.

        Args:
            headers: by names in lower case.

        Raises:
            Refused: 401; it brings none, or one that is unknown.
        """
        if not self._digests:
            return ""
        found = ""
        is_there = False
        for key in _brought(headers):
            is_there = True
            digest = _digest(key)
            for label, known in self._digests:
                if hmac.compare_digest(digest, known):
                    found = label
        if found:
            return found
        raise Refused(
            401,
            "invalid_api_key",
            "the key is unknown" if is_there else "this server asks for a key",
            hint="send Authorization: Bearer KEY, or x-api-key: KEY",
            headers={"www-authenticate": "Bearer"},
        )


def _brought(headers: Mapping[bytes, bytes]) -> Iterator[bytes]:
    scheme, _, key = headers.get(b"authorization", b"").strip().partition(b" ")
    if scheme.lower() == b"bearer" and key.strip():
        yield key.strip()
    if other := headers.get(b"x-api-key", b"").strip():
        yield other


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
