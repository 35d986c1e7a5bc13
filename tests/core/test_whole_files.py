"""Is a file there as a whole, or as it was before?"""

import os
import stat
from pathlib import Path

import pytest
from deepinfer_core.whole_files import replace_file


def test_a_file_is_made_and_then_replaced(tmp_path: Path) -> None:
    for text in ("one\n", "né\n", ""):
        replace_file(tmp_path / "file", text)
        assert [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()] == [text]


def test_a_file_that_cannot_be_replaced_stays_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("before")

    def full(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="disk full"):
        replace_file(tmp_path / "file", "after")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "before")]


def test_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "nowhere" / "file", "text")


def test_others_may_read_it_as_the_process_lets_them(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        replace_file(tmp_path / "file", "text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_a_reader_of_the_old_file_goes_on_reading_it(tmp_path: Path) -> None:
    replace_file(tmp_path / "file", "before")
    with (tmp_path / "file").open() as opened:
        replace_file(tmp_path / "file", "after, and longer")
        assert opened.read() == "before"
