"""The texts that the gate measures."""

import json
from pathlib import Path

import pytest
from deepinfer_core.engine.gate.texts import Sample, read_samples, select
from deepinfer_core.errors import ConfigError

LINES = [
    {"source": "a", "text": "one"},
    {"source": "b", "ids": [0, 5, 6, 7]},
    {"source": "a", "text": "x"},
    {"source": "a", "text": "three"},
]


def encode(text: str) -> list[int]:
    return [0, *text.encode()]


def write(folder: Path, *lines: object) -> None:
    (folder / "texts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def read(folder: Path, per_source: int, max_tokens: int) -> tuple[Sample, ...]:
    selection = select(folder, "texts.jsonl", per_source=per_source, max_tokens=max_tokens)
    return read_samples(folder, selection, encode, 1)


def test_the_first_documents_of_each_source_are_taken_and_ended(tmp_path: Path) -> None:
    write(tmp_path, *LINES)
    assert read(tmp_path, 2, 10) == (
        Sample(id="a/0", token_ids=(0, *b"one", 1)),
        Sample(id="b/0", token_ids=(0, 5, 6, 7)),
        Sample(id="a/1", token_ids=(0, *b"x", 1)),
    )


@pytest.mark.parametrize(("max_tokens", "length"), [(2, 2), (4, 4), (5, 5), (6, 5)])
def test_documents_are_cut(tmp_path: Path, max_tokens: int, length: int) -> None:
    write(tmp_path, LINES[0])
    [sample] = read(tmp_path, 1, max_tokens)
    assert sample.token_ids == (0, *b"one", 1)[:length]


@pytest.mark.parametrize(("per_source", "max_tokens"), [(0, 2), (1, 1)])
def test_a_selection_of_nothing_is_refused(
    tmp_path: Path, per_source: int, max_tokens: int
) -> None:
    write(tmp_path, *LINES)
    with pytest.raises(ConfigError, match="at least 1 document and 2 tokens"):
        read(tmp_path, per_source, max_tokens)


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, *LINES)
    selection = select(tmp_path, "texts.jsonl", per_source=1, max_tokens=4)
    write(tmp_path, *LINES[1:])
    with pytest.raises(ConfigError, match="is not the file that the baseline was measured on"):
        read_samples(tmp_path, selection, encode, 1)


@pytest.mark.parametrize(
    "line", [[], {"source": "a"}, {"text": "x"}, {"source": "a", "ids": [1.5]}, {"source": 1}]
)
def test_a_line_that_is_no_document_is_named(tmp_path: Path, line: object) -> None:
    write(tmp_path, LINES[0], line)
    with pytest.raises(ConfigError, match=r"texts\.jsonl:2 is no document"):
        read(tmp_path, 1, 4)


def test_too_short_and_missing_documents_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"source": "a", "ids": [0]})
    with pytest.raises(ConfigError, match="fewer than two tokens"):
        read(tmp_path, 1, 4)
    write(tmp_path)
    with pytest.raises(ConfigError, match="has no documents"):
        read(tmp_path, 1, 4)
    (tmp_path / "texts.jsonl").unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        read(tmp_path, 1, 4)


def test_a_line_of_brackets_without_end_is_no_document(tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text("[" * 100_000)
    with pytest.raises(ConfigError, match=r"texts\.jsonl:1 is no document"):
        read(tmp_path, 1, 4)


def read_long(folder: Path, per_source: int, tokens: int) -> tuple[Sample, ...]:
    selection = select(
        folder,
        "texts.jsonl",
        per_source=1,
        max_tokens=2,
        long_per_source=per_source,
        long_tokens=tokens,
    )
    return read_samples(folder, selection, encode, 1, are_long=True)


def test_long_texts_keep_the_number_that_they_have_among_all(tmp_path: Path) -> None:
    long = {"source": "a", "text": "x" * 300}
    write(tmp_path, LINES[0], long, LINES[1], long)
    [one] = read_long(tmp_path, 1, 260)
    assert (one.id, one.token_ids) == ("a/1", (0, *b"x" * 259))
    assert [one.id for one in read_long(tmp_path, 2, 302)] == ["a/1", "a/2"]


def test_a_file_without_long_texts_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"source": "a", "text": "x" * 300})
    assert len(read_long(tmp_path, 1, 302)) == 1
    with pytest.raises(ConfigError, match="has no documents of 303 tokens"):
        read_long(tmp_path, 1, 303)


@pytest.mark.parametrize(("per_source", "tokens"), [(-1, 300), (1, 257)])
def test_long_texts_must_be_longer_than_their_prompt(
    tmp_path: Path, per_source: int, tokens: int
) -> None:
    write(tmp_path, *LINES)
    with pytest.raises(ConfigError, match="0 documents, or more than 257 tokens"):
        read_long(tmp_path, per_source, tokens)
