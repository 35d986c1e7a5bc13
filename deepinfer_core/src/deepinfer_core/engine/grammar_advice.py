"""What is to be done where a request asks for a grammar and the engine has no component for it?"""

from __future__ import annotations

from deepinfer_core.interfaces.kinds import DISTRIBUTIONS
from deepinfer_core.plugin.report import Report

__all__ = ["how_to_get_grammars"]

_LINE = 'set components.grammar.use to "auto"'


def how_to_get_grammars(report: Report) -> str:
    """A hint that asks for no distribution that is there already.

    Args:
        report: of the choice in which no component fills the slot ``grammar``.
    """
    [choice] = [one for one in report.slots if one.wish.slot == "grammar"]
    if choice.rows:
        names = ", ".join(row.candidate.spec.name for row in choice.rows)
        return f"{_LINE}, which takes one of those that are installed: {names}"
    distribution = DISTRIBUTIONS["grammar"]
    if any(one.plugin.distribution == distribution for one in report.plugins):
        return f"{distribution} is installed and was not loaded; deepinfer plugins says why"
    return f"install {distribution}, which offers one, and {_LINE}"
