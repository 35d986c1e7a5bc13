"""What makes the masks of an engine, as the settings say?"""

from __future__ import annotations

from deepinfer_core.config.settings import Settings
from deepinfer_core.engine.grammar_advice import how_to_get_grammars
from deepinfer_core.engine.grammar_masks import Grammars
from deepinfer_core.engine.grammar_vocabulary import grammar_vocabulary
from deepinfer_core.engine.instruments import Instruments
from deepinfer_core.engine.tokenizer import Tokenizer
from deepinfer_core.errors import ConfigError
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.plugin.resolution import Resolution

__all__ = ["open_grammars"]


def open_grammars(
    resolution: Resolution,
    config: ModelConfig,
    settings: Settings,
    tokenizer: Tokenizer | None,
    instruments: Instruments,
) -> Grammars:
    """What makes masks, if a component was chosen.

    Args:
        resolution: the choice of components; every slot that must be is filled.
        config: of the checkpoint.
        settings: of the engine.
        tokenizer: of the checkpoint.
        instruments: told what is compiled.

    Raises:
        ConfigError: there is no tokenizer.
    """
    resolved = resolution.require()
    if not resolved.fills("grammar"):
        return Grammars(advice=how_to_get_grammars(resolution.report))
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
