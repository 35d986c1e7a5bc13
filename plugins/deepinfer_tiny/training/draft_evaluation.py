"""How many drafts would be accepted, and how honest is the confidence?

Greedy decoding is replayed: the text is the backbone's own greedy continuation, a round starts at
its first token, drafts come one after another from the drafter's own choices, the accepted ones
are those that equal the text, and the next round starts behind them and the correction.

Shapes: R rows, T tokens, P block positions (5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from .draft_training import Material
from .drafter import context_keys, propose, sequential
from .dropout import Dropout
from .network import Network
from .positions import Batch

__all__ = ["Rounds", "calibration_error", "fit_temperature", "greedy_rounds"]

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """All rounds of a set of texts."""

    accepted_N: np.ndarray  # drafts accepted in each round
    hit_NP: np.ndarray  # draft equals the text
    logit_NP: np.ndarray  # confidence before the sigmoid
    judged_NP: np.ndarray  # all earlier drafts were accepted and the text goes on


@torch.no_grad()
def _all_blocks(
    network: Network, w: Tensors, material: Material
) -> tuple[torch.Tensor, torch.Tensor]:
    """Hits and confidence logits [R, T, P] of a block at every row."""
    config, tokens = network.config, material.tokens_RT
    batch = Batch.packed(tokens, config.bos_token_id)
    keys = context_keys(network, w, material.features_RTX.flatten(0, 1), batch)
    anchor = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape)
    none = Dropout.none(tokens.device)
    block = propose(network, w, keys, batch, anchor, tokens, none)
    previous, hits, logits = tokens, [], []
    for i in range(config.dspark_block_size):
        score, confidence = sequential(
            w, block.raw_BAPC[:, :, i], block.base_BAPV[:, :, i], previous
        )
        previous = score.argmax(-1)
        text = torch.roll(tokens, -1 - i, dims=1)
        text[:, tokens.shape[1] - 1 - i :] = config.pad_token_id
        hits.append(previous == text)
        logits.append(confidence)
    return torch.stack(hits, dim=-1), torch.stack(logits, dim=-1)


def greedy_rounds(
    network: Network, w: Tensors, material: Material, prompt_tokens: np.ndarray, rows: int = 8
) -> Rounds:
    """Walk the rounds of every row.

    Args:
        network: backbone.
        w: prepared draft weights with ``embed`` and ``head``.
        material: one text a row, from row 0, padded behind its end.
        prompt_tokens: length of each row's prompt; the first round starts at the token after it.
        rows: rows of one pass.
    """
    pad, block = network.config.pad_token_id, network.config.dspark_block_size
    accepted, hit_rows, logit_rows, judged_rows = [], [], [], []
    for first in range(0, len(material.tokens_RT), rows):
        part = material.select(
            torch.arange(first, min(first + rows, len(material.tokens_RT)))
            .to(material.tokens_RT.device)
        )  # fmt: skip
        hits, logits = (x.cpu().numpy() for x in _all_blocks(network, w, part))
        length = (part.tokens_RT != pad).sum(1).cpu().numpy()
        for r, end in enumerate(length):
            t = int(prompt_tokens[first + r])
            while t < end - 1:
                room = min(block, end - 1 - t)
                hit = hits[r, t] & (np.arange(block) < room)
                count = int(np.cumprod(hit).sum())
                accepted.append(count)
                hit_rows.append(hit)
                logit_rows.append(logits[r, t])
                judged_rows.append(np.arange(block) < min(count + 1, room))
                t += count + 1
    return Rounds(
        accepted_N=np.array(accepted), hit_NP=np.array(hit_rows),
        logit_NP=np.array(logit_rows, dtype=np.float64), judged_NP=np.array(judged_rows),
    )  # fmt: skip


def _probability(rounds: Rounds, temperature_P: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-np.clip(rounds.logit_NP / temperature_P, -60, 60)))


def calibration_error(rounds: Rounds, temperature_P: np.ndarray, bins: int = 10) -> float:
    """Expected calibration error over judged drafts, equal-width bins of the confidence."""
    p = _probability(rounds, temperature_P)[rounds.judged_NP]
    hit = rounds.hit_NP[rounds.judged_NP]
    which = np.minimum((p * bins).astype(int), bins - 1)
    total = sum(abs((p - hit)[which == b].sum()) for b in range(bins))
    return float(total / len(p))


def fit_temperature(rounds: Rounds) -> np.ndarray:
    """Temperature of each position with the least binary cross entropy."""
    grid = np.exp(np.linspace(np.log(0.3), np.log(4.0), 105))
    best = []
    for i in range(rounds.logit_NP.shape[1]):
        judged = rounds.judged_NP[:, i]
        x, y = rounds.logit_NP[judged, i], rounds.hit_NP[judged, i]
        if len(x) == 0:
            best.append(1.0)
            continue
        z = x[None] / grid[:, None]
        loss = (np.logaddexp(0, z) - z * y[None]).mean(1)
        best.append(float(grid[loss.argmin()]))
    return np.array(best)
