"""Does ``plugins.require`` mean what the same text means to an installer?"""

import pytest
from deepinfer_core.errors import ConfigError
from deepinfer_core.plugin.requirements import normalised, parse_requirement


@pytest.mark.parametrize(
    ("bounds", "version", "accepted"),
    [
        ("", "0.0.1", True),
        (">=0.3", "0.3", True),
        (">=0.3", "0.3.0", True),
        (">=0.3", "0.2.9", False),
        (">=0.3", "0.10", True),
        (">=0.3", "0.3rc1", False),
        (">=0.3", "0.3.post1", True),
        (">=0.3", "0.3+local", True),
        (">=0.3,<0.5", "0.4.9", True),
        (">=0.3,<0.5", "0.5", False),
        ("<0.5", "0.5rc1", True),
        ("<=0.5", "0.5.0", True),
        (">0.5", "0.5.0", False),
        ("==1.0", "1", True),
        ("!=1.0", "1", False),
        (">=0.3", "unknown", False),
    ],
)
def test_bounds_compare_release_numbers(bounds: str, version: str, accepted: bool) -> None:
    assert parse_requirement(f"acme{bounds}").accepts(version) is accepted


@pytest.mark.parametrize("text", ["", ">=1", "acme 1.0", "acme~=1.0", "acme>=", "acme[x]>=1"])
def test_anything_else_is_refused_by_its_text(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_requirement(text)
    assert repr(text) in caught.value.message


def test_a_requirement_prints_as_it_is_written() -> None:
    assert str(parse_requirement("Acme_Fast >= 1.0 , < 2")) == "acme-fast>=1.0,<2"


def test_spellings_of_one_distribution_are_one_name() -> None:
    assert {normalised(name) for name in ("A.b", "a_B", "a-b", "A__B")} == {"a-b"}
