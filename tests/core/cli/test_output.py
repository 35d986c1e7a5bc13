"""Do tables and problems keep their form, whatever their words hold?"""

import pytest
from deepinfer_core.cli.output import complain, print_table


def test_columns_are_as_wide_as_their_widest_cell(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([("a", "b"), ("longer", "c")])
    assert capsys.readouterr().out == "a       b\nlonger  c\n"


def test_no_rows_are_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([])
    assert capsys.readouterr().out == ""


def test_line_breaks_and_terminal_commands_do_not_leave_their_cell(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table([("a\nb", "\x1b[31mred"), ("c", "d")])
    assert capsys.readouterr().out == "a b   [31mred\nc    d\n"


def test_a_problem_is_one_line_and_its_advice_another(capsys: pytest.CaptureFixture[str]) -> None:
    complain("a\nb\x1b", "do c")
    assert capsys.readouterr() == ("", "error: a b?\nhint: do c\n")


def test_without_standard_error_a_problem_does_not_get_among_the_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", None)
    complain("a", "b")
    assert capsys.readouterr().out == ""
