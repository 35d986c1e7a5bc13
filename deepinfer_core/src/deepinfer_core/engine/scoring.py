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

__all__ = ["DocumentScore", "bits_per_byte", "logits", "score_documents", "token_nats"]


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


def token_nats(llm: LLM, prompts: Sequence[Sequence[int]]) -> list[float]:
    """Negative log-likelihood of each prompt's tokens but the first, in nats.

    Args:
        llm: any checkpoint.
        prompts: token ids as they are; each within the model's context.

    Raises:
        RequestError: a prompt is invalid.
        EngineError: a step failed.
    """
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=True)
    found = []
    for done in llm.generate(prompt_token_ids=prompts, sampling_params=params):
        if done.error is not None:
            raise done.error
        entries = done.prompt_logprobs or ()
        found.append(-math.fsum(entry.logprob for entry in entries if entry is not None))
    return found


def score_documents(
    llm: LLM, documents: Sequence[str], *, with_end: bool = False
) -> list[DocumentScore]:
    """Score each document on its own, behind the beginning-of-sequence token.

    Args:
        llm: with a tokenizer.
        documents: texts, none empty, each within the model's context.
        with_end: the end-of-sequence token behind each document is predicted as well.

    Raises:
        RequestError: a document is empty or too long.
        EngineError: a step failed.
    """
    end = [llm.loaded.config.eos_token_id] if with_end else []
    prompts = [ids + end if ids else ids for ids in map(llm.encode, documents)]
    return [
        DocumentScore(bytes=len(document.encode()), tokens=len(prompt) - 1, nll=nll)
        for document, prompt, nll in zip(documents, prompts, token_nats(llm, prompts), strict=True)
    ]


def bits_per_byte(llm: LLM, documents: Sequence[str], *, with_end: bool = False) -> float:
    """Bits per byte over all documents together; arguments and errors of ``score_documents``."""
    scores = score_documents(llm, documents, with_end=with_end)
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
