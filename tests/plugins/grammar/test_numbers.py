"""Are numbers compared by all their digits, and those that nobody can write out refused at once?"""

from decimal import Decimal

import pytest
from deepinfer_grammar.errors import GrammarFault
from deepinfer_grammar.front import rules_of
from deepinfer_grammar.json_schema.constants import constant_text
from deepinfer_grammar.json_schema.numbers import at_least, at_most, equal_to, multiples_of
from deepinfer_grammar.regular.dfa import Dfa
from hypothesis import given
from hypothesis import strategies as st

DIGITS = st.text("0123456789", max_size=4)
NUMBERS = st.builds(
    lambda sign, whole, part: sign + (whole.lstrip("0") or "0") + (f".{part}" if part else ""),
    st.sampled_from(["", "-"]),
    DIGITS,
    DIGITS,
)


@given(NUMBERS, NUMBERS, st.booleans())
def test_a_bound_holds_for_every_spelling(bound: str, spelling: str, is_strict: bool) -> None:
    limit, value = Decimal(bound), Decimal(spelling)
    above = value > limit or (value == limit and not is_strict)
    below = value < limit or (value == limit and not is_strict)
    assert at_least(limit, is_strict=is_strict).accepts(spelling) is above
    assert at_most(limit, is_strict=is_strict).accepts(spelling) is below
    assert equal_to(limit).accepts(spelling) is (value == limit)


@pytest.mark.parametrize("spelling", ["", "-", "00", "01", "-01", "1.", ".5", "+1", "1e5", "1.0."])
@pytest.mark.parametrize("bound", ["0", "-3.5", "0.25", "17"])
def test_what_is_no_spelling_passes_no_bound(bound: str, spelling: str) -> None:
    for made in (at_least, at_most):
        assert not made(Decimal(bound), is_strict=False).accepts(spelling)


@pytest.mark.parametrize("digits", [1, 300, 399, 400])
def test_a_bound_of_many_digits_has_a_state_or_three_for_each(digits: int) -> None:
    """Below, equal and above for each digit, and a few behind them."""
    found = at_least(Decimal(10) ** (digits - 1), is_strict=False)
    assert found.accepts("1" + "0" * (digits - 1))
    assert not found.accepts("9" * (digits - 1))
    assert len(found.edges) <= 3 * digits + 7


def test_bounds_of_more_digits_than_decimals_usually_keep_are_exact() -> None:
    """The context has 28."""
    bound = Decimal("-1." + "0" * 40 + "1")
    assert not at_least(bound, is_strict=True).accepts(str(bound))
    assert at_least(bound, is_strict=False).accepts(str(bound))


def test_constants_and_divisors_of_many_digits_are_not_rounded() -> None:
    number = Decimal("12345678901234567890123456789.0123456789")
    assert constant_text(number) == str(number)
    assert constant_text(Decimal("-0.0")) == "0"
    assert constant_text(Decimal("1200e-1")) == "120"
    with pytest.raises(GrammarFault, match="over 5000 states"):
        multiples_of(Decimal("1." + "0" * 30 + "1"))


@pytest.mark.parametrize("step", ["3", "0.25", "100", "1e2", "2.50"])
def test_multiples_are_those_of_the_number(step: str) -> None:
    made: Dfa = multiples_of(Decimal(step))
    for quarter in range(0, 2000, 5):
        value = Decimal(quarter) / 100
        assert made.accepts(str(value)) is (value % Decimal(step) == 0)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ('{"minimum": 1e401}', "over 400 digits at character 12"),
        ('{"title": "1e401", "minimum": 1e-401}', "over 400 digits at character 30"),
        ('{"multipleOf": 1e5000}', "over 400 digits at character 15"),
        ('{"const": [2, -1e99999999999999999999]}', "over 400 digits at character 14"),
        ('{"maxItems": 1e300}', "#/maxItems: must be below 1000000000000000000"),
        ('{"items": {"minLength": 1000000000000000000}}', "#/items/minLength: must be below"),
        ('{"maximum": 1e400}', "#/maximum: a number has over 400 digits"),
    ],
)
def test_numbers_that_cannot_be_written_out_are_refused_with_their_place(
    schema: str, said: str
) -> None:
    with pytest.raises(GrammarFault) as caught:
        rules_of("json_schema", schema)
    assert said in str(caught.value)


@pytest.mark.parametrize("schema", ['{"minimum": 1e399}', '{"const": 1e399}', '{"enum": [0e99]}'])
def test_numbers_of_as_many_digits_as_are_taken_are_taken(schema: str) -> None:
    assert rules_of("json_schema", schema).rules


@pytest.mark.parametrize(
    ("expression", "place"),
    [
        ("((((a{100}){100}){100}){100})", 17),
        ("b(a{50000}|c){2}", 13),
        ("(ab){30001}", 4),
        ("((a|b){1,3}){9000,}", 12),
        ("(?=a{30000})((ab){2}){15000}", 21),
    ],
)
def test_repetitions_are_multiplied_before_anything_is_written_out(
    expression: str, place: int
) -> None:
    with pytest.raises(GrammarFault, match=f"over 60000 parts .* at character {place}$"):
        rules_of("regex", expression)
    path = "#/pattern: over 60000 parts .* at character"
    with pytest.raises(GrammarFault, match=path):
        rules_of("json_schema", f'{{"pattern": "{expression}"}}')


def test_parts_that_are_too_many_together_are_counted_too() -> None:
    """The bound of each is 60000 with itself, a part to begin with and one to end with."""
    with pytest.raises(GrammarFault, match="over 60000 parts"):
        rules_of("regex", "(ab){15000}(cd){15000}e")
