"""Does a table stay a table, whatever its cells hold?"""

import pytest
from deepinfer_core.cli.output import print_table


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
