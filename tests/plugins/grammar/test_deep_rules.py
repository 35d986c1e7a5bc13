"""Does a grammar of rules deep inside each other end no process, whatever stack a thread has?

Each is compiled and opened in a process of its own, by a thread with the smallest of stacks.
"""

import json
import subprocess
import sys

import pytest
from deepinfer_grammar.engines.descent import MOST_LEVELS, levels_of, with_levels
from deepinfer_grammar.errors import GrammarFault
from deepinfer_grammar.front import rules_of

OPENED = """
import json, sys, threading
from deepinfer_core.errors import UnsupportedGrammar
from deepinfer_core.interfaces.grammar import GrammarText
from deepinfer_core.testing.contracts.grammar_texts import GRAMMAR_VOCABULARY
from deepinfer_grammar.engines.llguidance_component import LlguidanceGrammar

kind, text = json.load(sys.stdin)

def run():
    component = LlguidanceGrammar()
    try:
        compiled = component.compile(GrammarText(kind=kind, text=text), GRAMMAR_VOCABULARY)
        component.open(compiled, GRAMMAR_VOCABULARY)
        print("opened")
    except UnsupportedGrammar as error:
        print(error)

threading.stack_size(1 << 20)
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


def chain(count: int, rule: str = '"x" {} "y" | "b"') -> str:
    rules = [f"r{number} ::= {rule.format(f'r{number + 1}')}" for number in range(count)]
    return "\n".join(["root ::= r0", *rules, f'r{count} ::= "a"'])


def opened(kind: str, text: str) -> str:
    pytest.importorskip("llguidance", reason="nox -s grammar runs these")
    done = subprocess.run(
        [sys.executable, "-c", OPENED],
        input=json.dumps([kind, text]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done
    return done.stdout


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("ebnf", chain(3000)),
        ("ebnf", chain(2000, '"x" (("a" {} | "b") | "c")')),
        ("ebnf", chain(2000, '"x" ("a" {} "q"){{2,3}} | "b"')),
        ("json_schema", json.dumps({"type": "array", "minItems": 3000, "maxItems": 3000})),
    ],
)
def test_deep_rules_open_where_threads_have_small_stacks(kind: str, text: str) -> None:
    assert opened(kind, text) == "opened\n"


def test_what_is_too_deep_is_refused_before_it_is_opened() -> None:
    found = opened("ebnf", chain(MOST_LEVELS, '{} | "b"'))
    assert f"can take {MOST_LEVELS:,}" in found
    assert "levels inside each other" in found


def test_levels_are_those_of_a_descent_into_each_rule_where_it_is_met_first() -> None:
    names = [f"r{number}" for number in range(51)]
    chained = chain(50).removeprefix("root ::= r0\n")
    backwards = rules_of("ebnf", f"root ::= {' | '.join(reversed(names))}\n{chained}")
    forwards = rules_of("ebnf", f"root ::= {' | '.join(names)}\n{chained}")
    assert levels_of(backwards) < 10
    assert levels_of(forwards) >= 50


def test_what_is_raised_in_the_thread_is_raised_here() -> None:
    def fail() -> None:
        raise GrammarFault("as it is")

    with pytest.raises(GrammarFault, match="as it is"):
        with_levels(1, fail)
    assert with_levels(1, lambda: 7) == 7
