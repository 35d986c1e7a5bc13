"""What makes the masks of an engine, as the settings say?"""

from __future__ import annotations

from deepinfer_core.config.settings import Settings
from deepinfer_core.engine.grammar_masks import NO_GRAMMARS, Grammars
from deepinfer_core.engine.grammar_vocabulary import grammar_vocabulary
from deepinfer_core.engine.instruments import Instruments
from deepinfer_core.engine.tokenizer import Tokenizer
from deepinfer_core.errors import ConfigError
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.plugin import Resolved

__all__ = ["open_grammars"]


def open_grammars(
    resolved: Resolved,
    config: ModelConfig,
    settings: Settings,
    tokenizer: Tokenizer | None,
    instruments: Instruments,
) -> Grammars:
    """What makes masks, if a component was chosen.

    Args:
        resolved: the choice of components.
        config: of the checkpoint.
        settings: of the engine.
        tokenizer: of the checkpoint.
        instruments: told what is compiled.

    Raises:
        ConfigError: there is no tokenizer.
    """
    if not any(pick.kind == "grammar" for pick in resolved.picks):
        return NO_GRAMMARS
    if tokenizer is None:
        raise ConfigError(
            "components.grammar is set, and this checkpoint has no tokenizer.json",
            hint="leave components.grammar out",
        )
    from deepinfer_core.engine.grammar_limits import PoolLimits
    from deepinfer_core.engine.grammar_pool import GrammarPool

    size, end_ids = config.text_config.vocab_size, frozenset({config.eos_token_id})
    limits = PoolLimits(**settings.grammar.model_dump())
    vocabulary = grammar_vocabulary(tokenizer, end_ids=end_ids, size=size)
    return Grammars(GrammarPool(resolved, vocabulary, limits, instruments), end_ids)
