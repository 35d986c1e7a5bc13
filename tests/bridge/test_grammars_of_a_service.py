"""Does a service take an installed grammar component without being told to?"""

import argparse

from deepinfer_core.cli.serve import add_arguments, served_settings


def chosen(*words: str) -> object:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return served_settings(parser.parse_args(words)).settings.components.grammar.use


def test_one_that_works_is_taken_where_nothing_is_said() -> None:
    assert chosen() == "auto"


def test_what_is_said_counts() -> None:
    assert chosen("--set", "components.grammar.use=none") == "none"
    assert chosen("--set", "components.grammar.use=grammar.llguidance") == "grammar.llguidance"
