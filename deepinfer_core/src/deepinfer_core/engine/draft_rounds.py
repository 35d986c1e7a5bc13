"""How often does the drafter guess what the model would write?

Rounds run along the model's own greedy text, each behind what the round before accepted, as
decoding with drafts would run them. Nothing is decoded faster here: the text is known before the
first round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from operator import mul
from typing import TYPE_CHECKING

from deepinfer_core.engine.acceptance import accept_matching
from deepinfer_core.engine.admission import checked_prompt
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import NotSupported, RequestError

if TYPE_CHECKING:
    from deepinfer_core.engine.llm import LLM
    from deepinfer_core.model.backbone import TextModel

__all__ = ["DraftRound", "DraftShares", "draft_rounds", "draft_shares"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftRound:
    """One round of the drafter.

    Attributes:
        position: of the anchor, the last token that is certain.
        anchor: its id.
        drafts: guessed ids of the following positions.
        confidences: estimated probability that each guess is accepted if those before it are.
        wanted: the model's own greedy tokens there; fewer than drafts where its text ends.
        accepted: guesses that agree, up to the first that does not.
    """

    position: int
    anchor: int
    drafts: tuple[int, ...]
    confidences: tuple[float, ...]
    wanted: tuple[int, ...]
    accepted: int

    @property
    def is_whole(self) -> bool:
        """Whether there was a token to compare every guess with."""
        return len(self.wanted) == len(self.drafts)


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftShares:
    """How rounds of equal length went, by draft.

    Attributes:
        rounds: whole ones; others do not count.
        accepted_per_round: mean of accepted drafts.
        survived: share of rounds in which each draft and all before it were accepted.
        expected: the same as the confidences have it, their products in the mean.
    """

    rounds: int
    accepted_per_round: float
    survived: tuple[float, ...]
    expected: tuple[float, ...]


def draft_shares(found: Iterable[DraftRound]) -> DraftShares | None:
    """Sum up rounds; None if none of them is whole."""
    whole = [item for item in found if item.is_whole]
    if not whole:
        return None
    places = range(len(whole[0].drafts))
    survived = tuple(sum(item.accepted > place for item in whole) / len(whole) for place in places)
    products = [tuple(accumulate(item.confidences, mul)) for item in whole]
    return DraftShares(
        rounds=len(whole),
        accepted_per_round=sum(survived),
        survived=survived,
        expected=tuple(sum(each[place] for each in products) / len(whole) for place in places),
    )


def draft_rounds(llm: LLM, prompt_ids: Sequence[int], rounds: int) -> list[DraftRound]:
    """Let the drafter guess.

    Args:
        llm: a checkpoint with a drafter.
        prompt_ids: as they are; nothing is added.
        rounds: at least 1. Fewer are run if the text ends or the context is full.

    Raises:
        RequestError: the prompt is invalid, or no round was asked for.
        NotSupported: the checkpoint has no drafter.
    """
    from deepinfer_core.engine.runner import ModelRunner

    text_config = llm.loaded.config.text_config
    if not llm.loaded.config.drafter_layers:
        raise NotSupported(
            "asked for drafts, found a checkpoint without a drafter",
            hint="choose a checkpoint with num_nextn_predict_layers above 0",
        )
    if rounds < 1:
        raise RequestError(f"rounds is {rounds}", hint="rounds must be at least 1")
    ids = checked_prompt(llm.engine.rules, prompt_ids)
    count = text_config.dspark_block_size
    params = SamplingParams(temperature=0, max_tokens=rounds * (count + 1) + 1)
    [done] = llm.generate([ids], params)
    if done.error is not None:
        raise done.error
    runner = llm.engine.runner
    assert isinstance(runner, ModelRunner)
    chunk = llm.engine.batch.limits.max_rows
    found = _rounds(runner.model, (*ids, *done.token_ids), len(ids), count, chunk)
    return list(islice(found, rounds))


def _rounds(
    model: TextModel, text: tuple[int, ...], prompt_tokens: int, count: int, chunk_tokens: int
) -> Iterator[DraftRound]:
    import torch

    from deepinfer_core.model.evaluate import fresh_caches, text_step

    caches = fresh_caches(model, len(text) + count)
    for start in range(0, prompt_tokens, chunk_tokens):
        stop = min(start + chunk_tokens, prompt_tokens)
        model.forward(text_step(text, start, stop, caches), caches)
    fed = prompt_tokens
    while fed < len(text):
        anchor, last, slot = (
            torch.tensor([n]).to(caches.blocks_PB.device) for n in (text[fed], fed - 1, 1)
        )
        draft_Qn, confidence_Qn = model.draft(anchor, last, slot, caches, count=count)
        drafts, wanted = tuple(draft_Qn[0].tolist()), text[fed + 1 : fed + 1 + count]
        accepted = accept_matching(drafts, wanted)
        yield DraftRound(
            position=fed,
            anchor=text[fed],
            drafts=drafts,
            confidences=tuple(confidence_Qn[0].tolist()),
            wanted=wanted,
            accepted=accepted,
        )
        stop = fed + accepted + 1
        model.forward(text_step(text, fed, stop, caches), caches)
        fed = stop
