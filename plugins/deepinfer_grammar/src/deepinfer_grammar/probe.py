"""Can a component run here? Its engine must be installed, in the version that was tested."""

from __future__ import annotations

from deepinfer_core.plugin import ProbeContext, Verdict

__all__ = ["TESTED", "llguidance", "xgrammar"]

TESTED = {"xgrammar": "0.2.9", "llguidance": "1.9.1"}
"""Versions whose masks were compared with the grammars' test data. Another version may read rules
otherwise, and a mask that is too wide is no error that anybody would see."""


def xgrammar(ctx: ProbeContext) -> Verdict:
    """Xgrammar 0.2.9; preferred, since its masks are the faster ones."""
    return _verdict(ctx, "xgrammar", score=20)


def llguidance(ctx: ProbeContext) -> Verdict:
    """Llguidance 1.9.1."""
    return _verdict(ctx, "llguidance", score=10)


def _verdict(ctx: ProbeContext, engine: str, *, score: int) -> Verdict:
    wanted = TESTED[engine]
    found = ctx.versions.get(engine)
    if found != wanted:
        return Verdict(
            False,
            reason=f"needs {engine} {wanted}, found {found or 'none'}",
            fix=f"pip install {engine}=={wanted}",
        )
    return Verdict(True, score=score, reason=f"{engine} {wanted}")
