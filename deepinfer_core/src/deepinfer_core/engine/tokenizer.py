"""How does text become token ids, and a token id become bytes?

Reads ``tokenizer.json`` of a checkpoint. Text is never searched for control tokens: their spelling
in a prompt is ordinary text, so nobody can forge one. Whoever wants control tokens gives token ids
or uses ``conversation``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as TextSplitter

from deepinfer_core.engine.byte_letters import BYTE_LETTERS
from deepinfer_core.errors import RequestError, WeightsError

__all__ = ["TOKENIZER_FILE", "Tokenizer", "open_tokenizer", "read_tokenizer"]

TOKENIZER_FILE = "tokenizer.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """A tokenizer whose tokens stand for fixed bytes.

    Attributes:
        splitter: without added tokens, so that it sees ordinary text only.
        pieces: the bytes of each token.
        visible_pieces: the same without what ``skip_special_tokens`` leaves out of the text.
        added: id of each added token by its spelling.
        source: the JSON text, for the conversation encoder.
    """

    splitter: TextSplitter
    pieces: Mapping[int, bytes]
    visible_pieces: Mapping[int, bytes]
    added: Mapping[str, int]
    source: str

    def encode(self, text: str) -> list[int]:
        """Ids of ordinary text; the beginning-of-sequence token is not added.

        Raises:
            RequestError: the text holds half of a surrogate pair, which is no character.
        """
        try:
            text.encode()  # not every version of the library refuses half a pair
            # For several texts it lets the interpreter's lock go, and it counts no characters.
            [encoded] = self.splitter.encode_batch_fast([text], add_special_tokens=False)
        except (AttributeError, TypeError, UnicodeError) as error:
            raise RequestError(
                "the text holds code points that are no characters",
                hint="read it with the right encoding",
            ) from error
        ids: list[int] = encoded.ids
        return ids

    def control_id(self, spelling: str) -> int | None:
        """Id of an added token, or None."""
        return self.added.get(spelling)

    def piece(self, token_id: int, *, skip_control: bool) -> bytes:
        """Bytes of a token; none for an id that the tokenizer does not know."""
        return self.pieces_of(skip_control=skip_control).get(token_id, b"")

    def pieces_of(self, *, skip_control: bool) -> Mapping[int, bytes]:
        """Bytes of every token that the text of a request may show."""
        return self.visible_pieces if skip_control else self.pieces

    def decode(self, token_ids: list[int] | tuple[int, ...], *, skip_control: bool = True) -> str:
        """Text of tokens; bytes that are no text become U+FFFD."""
        joined = b"".join(self.piece(token, skip_control=skip_control) for token in token_ids)
        return joined.decode("utf-8", errors="replace")


def open_tokenizer(folder: Path) -> Tokenizer | None:
    """Read the tokenizer of a checkpoint; None if the folder has none.

    Raises:
        WeightsError: the file cannot be read, or is not a byte-level tokenizer.
    """
    path = folder / TOKENIZER_FILE
    if not path.is_file():
        return None
    try:
        return read_tokenizer(path.read_text(encoding="utf-8"))
    except WeightsError:
        raise
    except Exception as error:
        raise WeightsError(
            f"{path} is not a tokenizer: {type(error).__name__}: {error}",
            hint="copy tokenizer.json again from where the checkpoint came from",
        ) from error


def read_tokenizer(source: str) -> Tokenizer:
    """Read the text of a ``tokenizer.json``, which was read before.

    Raises:
        WeightsError: it is not a byte-level tokenizer.
    """
    spec = json.loads(source)
    return _from_spec(spec, source)


def _from_spec(spec: dict[str, Any], source: str) -> Tokenizer:
    vocabulary: dict[str, int] = spec["model"]["vocab"]
    if _is_byte_level(spec.get("decoder")):
        pieces = {token: _bytes_of(text) for text, token in vocabulary.items()}
    elif spec.get("decoder") is None:
        # Whole words, as in random checkpoints: blanks stand between them.
        pieces = {token: f" {text}".encode() for text, token in vocabulary.items()}
    else:
        raise WeightsError(
            "tokenizer.json has a decoder that is not byte-level",
            hint="this model family uses byte-level tokenizers only",
        )
    added = spec.get("added_tokens", [])
    pieces |= {item["id"]: item["content"].encode() for item in added}
    control = frozenset(item["id"] for item in added if item.get("special"))
    plain = spec | {"added_tokens": [], "post_processor": None}
    return Tokenizer(
        splitter=TextSplitter.from_str(json.dumps(plain)),
        pieces=pieces,
        visible_pieces={token: piece for token, piece in pieces.items() if token not in control},
        added={item["content"]: item["id"] for item in added},
        source=source,
    )


def _is_byte_level(decoder: dict[str, Any] | None) -> bool:
    parts = (decoder or {}).get("decoders", [decoder or {}])
    return any(part.get("type") == "ByteLevel" for part in parts)


def _bytes_of(text: str) -> bytes:
    try:
        return bytes(BYTE_LETTERS[letter] for letter in text)
    except KeyError:
        return text.encode()
