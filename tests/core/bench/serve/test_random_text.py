"""Do random prompts have about the length that was asked for, wherever they are counted?"""

import random

import pytest

pytest.importorskip("msgspec", reason="pip install 'deepinfer-core[bench]' runs these")

from deepinfer_core.bench.lengths import parse_lengths
from deepinfer_core.bench.serve.random_text import WordRate, random_scripts, random_words, word_rate


def test_two_prompts_show_what_a_word_and_an_empty_prompt_cost() -> None:
    rate = word_rate((8, 22), (72, 150))
    assert rate == WordRate(tokens_per_word=2.0, fixed_tokens=6.0)
    assert rate.words(106) == 50


@pytest.mark.parametrize("tokens", [1, 6, 7])
def test_a_prompt_has_a_word_at_least(tokens: int) -> None:
    assert WordRate(tokens_per_word=2.0, fixed_tokens=6.0).words(tokens) == 1


def test_a_text_has_its_number_of_words() -> None:
    assert [len(random_words(count, random.Random(1)).split()) for count in (1, 2, 50)] == [
        1,
        2,
        50,
    ]


def test_scripts_have_lengths_of_the_distribution_and_differ() -> None:
    rate = WordRate(tokens_per_word=1.0, fixed_tokens=0.0)
    found = random_scripts(40, parse_lengths("20,30..32", ""), rate, 1)
    texts = [str(script.turns[0][0]["content"]) for script in found]
    assert {len(text.split()) for text in texts} == {20, 30, 31, 32}
    assert len(set(texts)) == 40
    assert random_scripts(40, parse_lengths("20,30..32", ""), rate, 1) == found
    assert random_scripts(40, parse_lengths("20,30..32", ""), rate, 2) != found
