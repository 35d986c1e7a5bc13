"""How well does the model predict a text it is given?

Logits of every position, and log-probabilities of documents as bits per byte.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepinfer_core.engine.admission import checked_prompt
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import RequestError

if TYPE_CHECKING:
    import numpy as np

    from deepinfer_core.engine.llm import LLM

__all__ = ["DocumentScore", "bits_per_byte", "logits", "score_documents"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentScore:
    """How one document was predicted.

    Attributes:
        bytes: UTF-8 bytes of the text.
        tokens: tokens that were predicted: all but the beginning-of-sequence token.
        nll: negative log-likelihood of them in nats.
    """

    bytes: int
    tokens: int
    nll: float

    @property
    def bits_per_byte(self) -> float:
        """Bits needed for one byte of the text."""
        return self.nll / math.log(2) / self.bytes


def score_documents(llm: LLM, documents: Sequence[str]) -> list[DocumentScore]:
    """Score each document on its own, after the beginning-of-sequence token.

    Args:
        llm: with a tokenizer.
        documents: texts, none empty, each within the model's context.

    Raises:
        RequestError: a document is empty or too long.
        EngineError: a step failed.
    """
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=True)
    prompts = [llm.encode(document) for document in documents]
    scores = []
    for document, done in zip(documents, llm.generate(prompts, params), strict=True):
        if done.error is not None:
            raise done.error
        entries = (done.prompt_logprobs or ())[1:]
        nll = -math.fsum(entry.logprob for entry in entries if entry is not None)
        scores.append(DocumentScore(bytes=len(document.encode()), tokens=len(entries), nll=nll))
    return scores


def bits_per_byte(llm: LLM, documents: Sequence[str]) -> float:
    """Bits per byte over all documents together; arguments and errors of ``score_documents``."""
    scores = score_documents(llm, documents)
    total_bytes = sum(score.bytes for score in scores)
    if not total_bytes:
        raise RequestError("there is nothing to score", hint="give at least one document")
    return math.fsum(score.nll for score in scores) / math.log(2) / total_bytes


def logits(llm: LLM, token_ids: Sequence[int]) -> np.ndarray:
    """Logits of every position of one text, chunked as the engine chunks prompts.

    Args:
        llm: loaded in the numerics that are asked for.
        token_ids: as they are; nothing is added.

    Returns:
        float32 [tokens, vocabulary]; row p belongs to the token behind position p.

    Raises:
        RequestError: no token, too many, or an id out of range.
    """
    import torch

    from deepinfer_core.engine.runner import ModelRunner
    from deepinfer_core.model.evaluate import score_logits

    ids = checked_prompt(llm.engine.rules, token_ids)
    runner = llm.engine.runner
    assert isinstance(runner, ModelRunner)
    chunk = llm.engine.batch.limits.max_rows
    with torch.inference_mode():
        found = score_logits(runner.model, ids, chunk_tokens=chunk)
        return found.to(torch.float32).cpu().numpy()
