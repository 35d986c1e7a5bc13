"""Do grammar.xgrammar and grammar.llguidance keep the contract of grammars?"""

import pytest
from deepinfer_core.interfaces.grammar import Grammar
from deepinfer_core.testing.contracts import GrammarContract
from deepinfer_grammar.engines.llguidance_component import LlguidanceGrammar
from deepinfer_grammar.engines.xgrammar_component import XgrammarGrammar


class TestXgrammar(GrammarContract):
    @pytest.fixture
    def component(self) -> Grammar:
        pytest.importorskip("xgrammar", reason="needs xgrammar")
        return XgrammarGrammar()


class TestLlguidance(GrammarContract):
    @pytest.fixture
    def component(self) -> Grammar:
        pytest.importorskip("llguidance", reason="nox -s grammar runs these")
        return LlguidanceGrammar()
