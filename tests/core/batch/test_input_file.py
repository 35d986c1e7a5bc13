"""Reading the input: duplicates, long lines, growth, and what stays in memory."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from deepinfer_core.batch.input_file import read_lines, scan_input
from deepinfer_core.errors import ConfigError

RequestText = Callable[..., str]


def test_empty_lines_are_no_requests_but_count_as_lines(
    tmp_path: Path, request_text: RequestText
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("\n" + request_text("a") + "  \r\n" + request_text("b").rstrip("\n"))
    scan = scan_input(source, set())
    assert scan.requests == 2
    assert [line.number for line in read_lines(source, scan, set())] == [2, 4]


def test_an_empty_file_holds_no_requests(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(b"")
    scan = scan_input(tmp_path / "in.jsonl", set())
    assert (scan.requests, scan.size_bytes) == (0, 0)


def test_a_custom_id_that_stands_twice_is_refused_with_its_line(
    tmp_path: Path, request_text: RequestText
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(request_text("a") + request_text("b") + request_text("a", seed=1))
    with pytest.raises(ConfigError, match=r":3: custom_id 'a' stands in an earlier line"):
        scan_input(source, set())


def test_lines_with_an_answer_are_left_out(tmp_path: Path, request_text: RequestText) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(request_text("a") + request_text("b", url="/v1/chat/completions"))
    scan = scan_input(source, set())
    first, second = read_lines(source, scan, set())
    assert [line.custom_id for line in read_lines(source, scan, {first.line_id})] == ["b"]
    assert scan.unanswered_chats == 1
    assert scan_input(source, {second.line_id}).unanswered_chats == 0


def test_an_answer_to_a_line_that_is_not_there_is_refused(
    tmp_path: Path, request_text: RequestText
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(request_text("a"))
    with pytest.raises(ConfigError, match="answers 1 lines that"):
        scan_input(source, {"batch_req_0"})


def test_lines_that_are_appended_later_are_left_for_the_next_run(
    tmp_path: Path, request_text: RequestText
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(request_text("a"))
    scan = scan_input(source, set())
    with source.open("a") as file:
        file.write(request_text("a") + request_text("b"))
    assert [line.custom_id for line in read_lines(source, scan, set())] == ["a"]


@pytest.mark.parametrize("length", [98, 99, 100, 101, 250])
def test_only_a_line_above_the_limit_is_an_error(tmp_path: Path, length: int) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(b"1" * length + b"\n[]\n")
    scan = scan_input(source, set(), max_line_bytes=100)
    first, second = read_lines(source, scan, set(), max_line_bytes=100)
    assert first.error is not None
    assert ("longer than 100 bytes" in first.error.message) is (length > 99)
    assert second.number == 2


@pytest.mark.parametrize("name", ["absent.jsonl", "."])
def test_an_input_that_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError):
        scan_input(tmp_path / name, set())


def test_memory_does_not_grow_with_the_size_of_the_requests(
    tmp_path: Path, request_text: RequestText
) -> None:
    source, count, size = tmp_path / "in.jsonl", 100, 100_000
    source.write_text("".join(request_text(str(i), prompt="x" * size) for i in range(count)))
    tracemalloc.start()
    try:
        scan = scan_input(source, set())
        for line in read_lines(source, scan, set()):
            assert line.error is None
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # One line is held in a few forms at a time (bytes, text, object); the file is a hundred lines.
    assert peak_bytes < 10 * size


def test_a_byte_order_mark_in_front_of_the_file_is_no_part_of_its_first_line(
    tmp_path: Path, request_text: RequestText
) -> None:
    plain, marked = tmp_path / "in.jsonl", tmp_path / "marked.jsonl"
    plain.write_text(request_text("a") + request_text("b"))
    marked.write_bytes(b"\xef\xbb\xbf" + plain.read_bytes())
    lines = [list(read_lines(file, scan_input(file, set()), set())) for file in (plain, marked)]
    assert lines[0] == lines[1]
    assert [line.error for line in lines[1]] == [None, None]


def test_a_file_of_a_byte_order_mark_holds_no_requests(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(b"\xef\xbb\xbf")
    assert scan_input(tmp_path / "in.jsonl", set()).requests == 0


def test_a_byte_order_mark_in_a_later_line_is_an_error_of_that_line(
    tmp_path: Path, request_text: RequestText
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(request_text("a").encode() + b"\xef\xbb\xbf" + request_text("b").encode())
    first, second = read_lines(source, scan_input(source, set()), set())
    assert first.error is None
    assert second.error is not None
