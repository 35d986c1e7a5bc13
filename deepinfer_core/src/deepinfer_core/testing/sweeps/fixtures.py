"""What do sweeps take from the test module that runs them?"""

from collections.abc import Callable

from deepinfer_core.model.backbone import TextModel
from deepinfer_core.testing.cold_text import ColdText
from deepinfer_core.testing.small_engines import EngineShape, SmallEngine

__all__ = ["ColdTexts", "MakeEngine"]

ColdTexts = Callable[..., ColdText]
"""``(window_tokens, **text_overrides)``: the text of the sweeps, made once for each."""

MakeEngine = Callable[[TextModel, EngineShape], SmallEngine]
"""Puts an engine together."""
