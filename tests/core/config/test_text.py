"""What value does a text stand for?"""

import pytest
from deepinfer_core.config.text import parse_text

SEED = ("engine", "seed")
PATH = ("model", "path")
OPTION = ("components", "sampler", "options", "x")


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        (SEED, "7", 7),
        (SEED, "1_000", 1000),
        (SEED, "none", None),
        (("threads",), "none", "none"),
        (PATH, "7", "7"),
        (PATH, "true", "true"),
        (PATH, "none", None),
        (PATH, '"none"', "none"),
        (PATH, "/a b/c", "/a b/c"),
        (PATH, "", ""),
        (OPTION, "true", True),
        (OPTION, "True", "True"),
        (OPTION, "1.5", 1.5),
        (OPTION, "[1, 2]", [1, 2]),
        (OPTION, "{ a = 1 }", {"a": 1}),
        (OPTION, '"7"', "7"),
        (OPTION, "core.reference", "core.reference"),
        (OPTION, "2026-01-01", "2026-01-01"),
        (OPTION, "1\nother = 2", "1\nother = 2"),
    ],
)
def test_a_text_is_a_toml_value_or_itself(path: tuple[str, ...], text: str, value: object) -> None:
    assert parse_text(path, text) == value
    assert type(parse_text(path, text)) is type(value)
