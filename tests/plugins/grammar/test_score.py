"""Are no grammars of the test data lost that were once right? Better is silent, worse is an error.

The data is not part of the repository. ``benchmarks/grammar_score.py FOLDER --json`` writes what
``tests/data/grammar_score.json`` keeps of each component.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RATCHET = json.loads((ROOT / "tests" / "data" / "grammar_score.json").read_text(encoding="utf-8"))
VARIABLE = "DEEPINFER_TEST_GRAMMAR_DATA"
FOLDER = os.environ.get(VARIABLE, "")


@pytest.mark.slow
@pytest.mark.skipif(
    not FOLDER, reason=f"needs the grammars' test data; name its folder in {VARIABLE}"
)
@pytest.mark.parametrize("component", sorted(RATCHET))
def test_no_grammar_of_the_data_is_lost(component: str) -> None:
    pytest.importorskip(component.removeprefix("grammar."), reason=f"needs {component}")
    spec = importlib.util.spec_from_file_location(
        "grammar_score", ROOT / "benchmarks" / "grammar_score.py"
    )
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules["grammar_score"] = script
    spec.loader.exec_module(script)
    report = script.scored(component, Path(FOLDER))
    kept = RATCHET[component]
    assert set(report.wrong) <= set(kept["wrong"])
    for name, score in report.categories.items():
        assert score.kept_out == score.others, name
    assert report.total().allowed >= kept["allowed"]


def test_the_ratchet_keeps_what_was_promised() -> None:
    """Of 1,269 grammars at least 1,180 are right, and 92 % of the members can be written."""
    for kept in RATCHET.values():
        assert kept["rows"] == 1269
        assert kept["rows"] - len(kept["wrong"]) >= 1180
        assert kept["allowed"] >= 0.92 * kept["members"]
