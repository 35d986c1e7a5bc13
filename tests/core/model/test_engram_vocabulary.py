"""Do tokens that mean the same share an Engram id, and does a history stop where it must?"""

from pathlib import Path

import pytest
import torch
from deepinfer_core.errors import WeightsError
from deepinfer_core.model.engram_vocabulary import (
    compress_vocabulary,
    compressed_history,
    load_compressed_vocabulary,
)
from tokenizers import AddedToken, Tokenizer, decoders, models


def _words(*tokens: str) -> Tokenizer:
    """A tokenizer that decodes each id to exactly the given text."""
    return Tokenizer(models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token=""))


def _bytes(*tokens: str) -> Tokenizer:
    """A tokenizer whose tokens are spelled in the byte-level alphabet."""
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, []))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Word", "wORD"),
        ("cafe", "café"),
        ("cafe", "cafe\u0301"),
        ("fi", "\N{LATIN SMALL LIGATURE FI}"),
        ("a", "\N{FULLWIDTH LATIN CAPITAL LETTER A}"),
        ("a b", "a \t\r\n b"),
        ("a", "  a\n"),
        ("a", "\x0ba\u2003"),
        (" ", "\t\n"),
        (" ", "\N{NO-BREAK SPACE}"),
    ],
)
def test_texts_that_agree_after_normalisation_share_an_id(first: str, second: str) -> None:
    assert compress_vocabulary(_words(first, second)).id_V.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a", "b"),
        ("ab", "a b"),
        ("a b", "a\x0bb"),
        ("\x0b", " "),
        ("\x0b", "\x0c"),
        ("\u0300", "\u0301"),
        ("ß", "ss"),
    ],
    ids=repr,
)
def test_texts_that_differ_after_normalisation_keep_their_ids(first: str, second: str) -> None:
    assert compress_vocabulary(_words(first, second)).id_V.tolist() == [0, 1]


def test_ids_are_numbered_by_first_appearance() -> None:
    vocabulary = compress_vocabulary(_words("b", "a", "B", "c", "A"))
    assert vocabulary.id_V.tolist() == [0, 1, 0, 2, 1]
    assert vocabulary.size == 3


def test_pieces_of_a_character_are_told_apart_by_their_raw_spelling() -> None:
    # Bytes C3 and E3 alone decode to the same replacement character; normalised, the spellings
    # would lose their accents and meet in "a".
    assert compress_vocabulary(_bytes("Ã", "ã", "a")).id_V.tolist() == [0, 1, 2]


def test_byte_level_tokens_are_compared_by_their_decoded_text() -> None:
    assert compress_vocabulary(_bytes("Ġword", "word", "Ċ", "Ġ")).id_V.tolist() == [0, 0, 1, 1]


def test_special_tokens_take_part_with_their_text() -> None:
    tokenizer = _words("a")
    tokenizer.add_tokens(
        [AddedToken(text, special=True) for text in ("<|Begin|>", "<|end|>", "<|begin|>")]
    )
    assert compress_vocabulary(tokenizer).id_V.tolist() == [0, 1, 2, 1]


def test_upper_case_copies_fold_onto_the_first_ids() -> None:
    vocabulary = compress_vocabulary(
        _words(*(f"w{i}" for i in range(4000)), *(f"W{i}" for i in range(96)))
    )
    assert vocabulary.size == 4000
    assert torch.equal(vocabulary.id_V, torch.arange(4096) % 4000)


def test_an_id_without_a_token_is_refused() -> None:
    gap = Tokenizer(models.WordLevel({"a": 0, "b": 2}, unk_token="a"))
    with pytest.raises(WeightsError, match="none with id 1"):
        compress_vocabulary(gap)


def test_a_stored_tokenizer_of_the_expected_size_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    _words("a", "A", "b").save(str(path))
    assert load_compressed_vocabulary(path, expected_size=2).id_V.tolist() == [0, 0, 1]


@pytest.mark.parametrize("expected", [1, 3])
def test_another_count_than_the_configs_is_refused(tmp_path: Path, expected: int) -> None:
    path = tmp_path / "tokenizer.json"
    _words("a", "A", "b").save(str(path))
    with pytest.raises(WeightsError, match=f"{expected}, found 2 distinct"):
        load_compressed_vocabulary(path, expected_size=expected)


def test_a_missing_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no readable tokenizer"):
        load_compressed_vocabulary(tmp_path / "tokenizer.json", expected_size=2)


def test_a_damaged_tokenizer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text('{"model": ', encoding="utf-8")
    with pytest.raises(WeightsError, match="no readable tokenizer"):
        load_compressed_vocabulary(path, expected_size=2)


ID_V = torch.tensor([10, 11, 12, 13, 14])
PAD = 99


def _history(tokens: list[int], images: tuple[int, ...] = ()) -> list[int]:
    """The history of one row; ``tokens`` and ``images`` count back from the row itself."""
    previous = len(tokens) - 1
    return compressed_history(
        ID_V,
        torch.tensor(tokens[:1]),
        torch.tensor([tokens[1:]], dtype=torch.int64),
        torch.tensor([0 in images]),
        torch.tensor([[distance + 1 in images for distance in range(previous)]], dtype=torch.bool),
        PAD,
    )[0].tolist()


def test_text_is_read_back_to_the_longest_distance() -> None:
    assert _history([4, 3, 0, 1]) == [14, 13, 10, 11]


def test_places_before_the_first_token_read_as_padding() -> None:
    assert _history([4, 3, -1, -1]) == [14, 13, PAD, PAD]


@pytest.mark.parametrize("distance", [0, 1, 2, 3])
def test_an_image_hides_itself_and_everything_before_it(distance: int) -> None:
    expected = [14, 13, 10, 11][:distance] + [PAD] * (4 - distance)
    assert _history([4, 3, 0, 1], images=(distance,)) == expected


@pytest.mark.parametrize("outside", [-1, 5, 6])
def test_an_id_outside_the_vocabulary_hides_everything_before_it(outside: int) -> None:
    assert _history([4, outside, 0, 1]) == [14, PAD, PAD, PAD]


def test_a_row_without_lookback_gives_its_own_id_alone() -> None:
    assert _history([2]) == [12]


def test_no_rows_give_no_histories() -> None:
    none = torch.zeros(0, dtype=torch.int64)
    history = compressed_history(
        ID_V, none, none.view(0, 3), none.bool(), none.view(0, 3).bool(), PAD
    )
    assert history.shape == (0, 4)
