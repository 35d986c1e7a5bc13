"""Which id does Engram's hash see for each token of the checkpoint's vocabulary?

Engram looks n-grams up by meaning rather than by spelling: tokens whose decoded texts agree after
normalisation (compatibility forms, accents, case, runs of blanks) share one compressed id. The
number of distinct ids enters the hash multipliers, so a single token more or less moves every row:
the map is built from tokenizer.json as it is stored, before any token is registered at run time,
and a count other than the config's engram_compressed_vocab_size is refused.

Ids outside the vocabulary (the engine's image sentinels, "no token here") map to ``NO_ID``.

Shapes: V ids of tokenizer.json, T rows, N lookback distances.

Source: the vocabulary projection of DeepSeek-V4.1-Flash's Engram.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, normalizers

from deepinfer_core.errors import WeightsError

__all__ = [
    "NO_ID",
    "CompressedVocabulary",
    "compress_vocabulary",
    "compressed_history",
    "load_compressed_vocabulary",
]

NO_ID = -1
_UNDECODABLE = "\N{REPLACEMENT CHARACTER}"
_LONE_SPACE = "\ue000"  # private use: keeps a text of one space through the stripping


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedVocabulary:
    """The map from token ids to compressed ids.

    Attributes:
        id_V: int64 compressed ids on the host, [V], numbered by first appearance.
        size: how many distinct compressed ids there are.
    """

    id_V: torch.Tensor
    size: int


def load_compressed_vocabulary(path: Path, *, expected_size: int) -> CompressedVocabulary:
    """Build the map of a checkpoint's tokenizer.json.

    Args:
        path: the file as stored in the checkpoint.
        expected_size: the config's engram_compressed_vocab_size.

    Raises:
        WeightsError: the file cannot be read, has gaps in its ids, or gives another count.
    """
    try:
        tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the tokenizers library raises bare Exception
        raise WeightsError(
            f"asked for the Engram vocabulary of {path}, found no readable tokenizer: {error}",
            hint="restore tokenizer.json from the checkpoint's publisher",
        ) from error
    vocabulary = compress_vocabulary(tokenizer)
    if vocabulary.size != expected_size:
        raise WeightsError(
            f"asked for engram_compressed_vocab_size {expected_size}, found {vocabulary.size}"
            f" distinct normalised tokens in {path}",
            hint="use the tokenizer.json published with these weights, without added tokens",
        )
    return vocabulary


def compress_vocabulary(tokenizer: Tokenizer) -> CompressedVocabulary:
    """Number the distinct normalised texts of a tokenizer's ids by first appearance.

    Raises:
        WeightsError: an id below the vocabulary's size has no token.
    """
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    texts = tokenizer.decode_batch([[token] for token in range(size)], skip_special_tokens=False)
    normalise = _normaliser().normalize_str
    number: dict[str, int] = {}
    ids = []
    for token, text in enumerate(texts):
        name = tokenizer.id_to_token(token)
        if name is None:
            raise WeightsError(
                f"asked for the {size} tokens of a tokenizer, found none with id {token}",
                hint="Engram needs ids without gaps; use the published tokenizer.json",
            )
        key = name if _UNDECODABLE in text else normalise(text) or text
        ids.append(number.setdefault(key, len(number)))
    return CompressedVocabulary(id_V=torch.tensor(ids, dtype=torch.int64), size=len(number))


def compressed_history(
    id_V: torch.Tensor,
    token_T: torch.Tensor,
    previous_TN: torch.Tensor,
    image_T: torch.Tensor,
    image_previous_TN: torch.Tensor,
    pad_id: int,
) -> torch.Tensor:
    """Compressed ids at distance 0, 1, .. N before each row, padding filled in.

    A row whose token is missing, outside the vocabulary or inside an image span blocks itself and
    everything before it: those entries read as padding.

    Args:
        id_V: the map, on the device of the other tensors.
        token_T: int64 token ids.
        previous_TN: int64 ids at distance 1 .. N, ``-1`` where there is none.
        image_T: bool, rows inside an image span.
        image_previous_TN: bool, the same for ``previous_TN``.
        pad_id: the *compressed* id of engram_pad_token_id.

    Returns:
        int64 [T, 1 + N], new memory.
    """
    token = torch.cat((token_T[:, None], previous_TN), dim=1)
    image = torch.cat((image_T[:, None], image_previous_TN), dim=1)
    known = (token >= 0) & (token < id_V.shape[0])
    compressed = torch.where(known, id_V[torch.where(known, token, 0)], NO_ID)
    blocked = ((compressed == NO_ID) | image).cummax(dim=1).values
    return torch.where(blocked, pad_id, compressed)


def _normaliser() -> normalizers.Normalizer:
    return normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.NFD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex("[ \t\r\n]+"), " "),
            normalizers.Replace(Regex("^ $"), _LONE_SPACE),
            normalizers.Strip(),
            normalizers.Replace(_LONE_SPACE, " "),
        ]
    )
