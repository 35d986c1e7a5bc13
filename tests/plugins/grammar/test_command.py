"""What does the command say of answers that have a form to keep?"""

import pytest
from deepinfer_core.cli import main


@pytest.mark.parametrize("way", [(), ("--stream",), ("--json",)], ids=["text", "stream", "json"])
def test_one_that_was_cut_is_told_from_one_that_is_whole(
    way: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", "Tom:", "--regex", "[a-z ]{40,60}", "--max-tokens", "3", *way]) == 0
    assert "warning: the answer was cut after 3 tokens" in capsys.readouterr().err
    assert main(["generate", "Tom:", "--regex", "[a-z]{4}", "--max-tokens", "30", *way]) == 0
    assert capsys.readouterr().err == ""
