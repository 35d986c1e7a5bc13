"""May cached bytes be used as if they had just been computed? A block's key decides.

Keys form a chain. Its root, the *namespace*, binds whatever changes the bytes of every block: the
weights, the layout of the caches, the numerics; and a salt, which keeps users apart who must not
learn of each other's prompts. Each block's key binds the key before it, the token ids of the block,
and what else its bytes depend on, such as the content of an image whose placeholder ids all look
alike. Two blocks with one key therefore hold the same bytes, in every process and on every machine:
the encoding is fixed, and neither an interpreter's seeded hash nor byte order nor a path enters.

Every field is hashed behind its length, so that no choice of fields spells another choice. A key
tells what a prompt was to whoever guesses the prompt: treat keys as confidential, log 8 hex digits
at most.
"""

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deepinfer_core.errors import EngineError
from deepinfer_core.interfaces.kv_store import KEY_BYTES

__all__ = [
    "KEY_BYTES",
    "ImagePlace",
    "KeyChain",
    "block_extras",
    "block_key",
    "framed_digest",
    "namespace",
]

_LENGTH = struct.Struct("<Q")
_TOKEN_IDS = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePlace:
    """The placeholders of one image.

    Attributes:
        digest: of the image's content as the model sees it.
        start: position of the first placeholder.
        tokens: how many there are, at least 1.
    """

    digest: bytes
    start: int
    tokens: int


def framed_digest(*fields: bytes) -> bytes:
    """SHA-256 over fields, each behind its length in 8 bytes, little end first."""
    return hashlib.sha256(_framed(*fields)).digest()


def _framed(*fields: bytes) -> bytes:
    pieces: list[bytes] = []
    for field in fields:
        pieces += (_LENGTH.pack(len(field)), field)
    return b"".join(pieces)


def namespace(*, model: bytes, layout: bytes, numerics: str, salt: bytes = b"") -> bytes:
    """Root of all chains that may share blocks.

    Args:
        model: digest of the weights: names, shapes, dtypes, contents. Not a path or served name.
        layout: ``layout_fingerprint`` of the caches.
        numerics: class of results that are interchangeable, e.g. one kernel family and version
            whose results do not depend on the batch.
        salt: of the users who may share, derived by the server; empty where all may.
    """
    return framed_digest(b"ns1", model, layout, numerics.encode(), salt)


def block_key(parent: bytes, token_ids: Sequence[int], extras: bytes = b"") -> bytes:
    """Key of a block.

    Args:
        parent: key of the block before it, or the namespace.
        token_ids: of the block.
        extras: what else its bytes depend on; see ``block_extras``.

    Raises:
        EngineError: an id is not a whole number from 0 to 2**32 - 1.
    """
    try:
        packed = struct.pack(f"<{len(token_ids)}I", *token_ids)
    except struct.error:
        raise EngineError(
            f"asked for the key of a block, found the token id {_unfit(token_ids)!r}",
            hint="token ids are whole numbers from 0 to 2**32 - 1",
        ) from None
    return framed_digest(b"blk1", parent, packed, extras)


def block_extras(
    block_tokens: int,
    images: Sequence[ImagePlace] = (),
    salts: Mapping[int, bytes] | None = None,
) -> dict[int, bytes]:
    """What the keys of a text's blocks bind beside its token ids, by the block's number.

    An image is bound to every block that has some of its placeholders, with the place of the first
    of them in the block and in the image; a salt to the block where it begins to apply, and so to
    all behind it.

    Args:
        block_tokens: tokens of a block.
        images: in order, no two at one position.
        salts: of users who share all blocks before, by the number of the first block that they do
            not share.
    """
    fields: dict[int, list[bytes]] = {}
    for image in images:
        end = image.start + image.tokens
        for number in range(image.start // block_tokens, -(-end // block_tokens)):
            first = max(image.start, number * block_tokens)
            places = (first - number * block_tokens, first - image.start)
            fields.setdefault(number, []).extend(
                (b"img1", image.digest, *(_LENGTH.pack(place) for place in places))
            )
    for number, salt in (salts or {}).items():
        fields.setdefault(number, []).extend((b"slt1", salt))
    return {number: _framed(*found) for number, found in fields.items()}


class KeyChain:
    """Keys of the complete blocks of one growing list of tokens.

    Args:
        root: the namespace.
        block_tokens: tokens of a block, at least 1.
        extras: what else the bytes of a block depend on, by the block's number; see
            ``block_extras``.

    Attributes:
        root: as given.
        keys: of all complete blocks so far, in order. Not for changing.

    Raises:
        ValueError: ``block_tokens`` is below 1.
    """

    def __init__(
        self, root: bytes, block_tokens: int, *, extras: Mapping[int, bytes] | None = None
    ) -> None:
        if block_tokens < 1:
            raise ValueError(f"a block covers at least 1 token, found {block_tokens}")
        self.keys: list[bytes] = []
        self.root = root
        self._block_tokens = block_tokens
        self._extras = extras or {}

    def extend(self, tokens: Sequence[int]) -> None:
        """Add the keys of blocks that have become complete.

        Args:
            tokens: all tokens so far, those of earlier calls included and unchanged; they are not
                read again.

        Raises:
            EngineError: there are fewer tokens than have keys, or an id is out of range. Keys of
                the blocks before such an id are kept.
        """
        size = self._block_tokens
        complete = len(tokens) // size
        if complete < len(self.keys):
            raise EngineError(
                f"asked for the keys of {complete} blocks, found {len(self.keys)} made before",
                hint="tokens with a key are final: start another chain",
            )
        for number in range(len(self.keys), complete):
            parent = self.keys[-1] if self.keys else self.root
            block = tokens[number * size : (number + 1) * size]
            self.keys.append(block_key(parent, block, self._extras.get(number, b"")))


def _unfit(token_ids: Sequence[int]) -> object:
    for token_id in token_ids:
        if not isinstance(token_id, int) or not 0 <= token_id < _TOKEN_IDS:
            return token_id
    return None
