"""What does the step loop do while nothing is under way and nobody can proceed?"""

from __future__ import annotations

from deepinfer_core.engine.batch import Batch
from deepinfer_core.engine.grammar_masks import Grammars
from deepinfer_core.errors import EngineError

__all__ = ["stand_still"]


def stand_still(batch: Batch, grammars: Grammars) -> None:
    """Wait a little for whoever can help: who compiles a grammar, or a store.

    Args:
        batch: the queues; they may be empty.
        grammars: of its sequences.

    Raises:
        EngineError: there are sequences, and none can ever proceed.
    """
    exchange = batch.pages.exchange
    if grammars.wait(batch) or (exchange is not None and exchange.wait()):
        return
    if len(batch):
        raise EngineError(f"none of {len(batch)} sequences can proceed")
    if exchange is not None and exchange.is_busy:
        exchange.linger()
