"""How does the finished backbone produce the material that its drafter learns from?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from .decode import Decoder
from .draft_training import Material
from .dropout import Dropout
from .network import Network
from .positions import Batch

__all__ = ["Written", "observe", "write_texts"]

Tensors = dict[str, torch.Tensor]
Written = tuple[torch.Tensor, np.ndarray]


def write_texts(
    network: Network, w: Tensors, prompts: Path, temperature: float, held_out: bool, tokens: int
) -> Written:
    """Continue prompts in lockstep.

    Args:
        network: backbone with uncompiled stages.
        w: prepared weights without gradients.
        prompts: file of `prompts.write_prompts`.
        temperature: 0 is greedy.
        held_out: continue the held-out prompts instead of the training ones.
        tokens: length of every row, a power of two on an NVIDIA device.

    Returns:
        Token rows [P, tokens], padded after EOS; prompt length of each row.
    """
    data = np.load(prompts)
    mine = np.flatnonzero(data["held_out"] == held_out)
    given, length = data["tokens"][mine].astype(np.int64), data["length"][mine]
    decoder = Decoder(network, w, len(mine), tokens)
    device = decoder.tokens_BL.device
    width = min(given.shape[1], tokens)
    mask = np.arange(width) < length[:, None]
    decoder.tokens_BL[:, :width] = torch.from_numpy(
        np.where(mask, given[:, :width], network.config.pad_token_id)
    ).to(device)
    decoder.given_BL[:, :width] = torch.from_numpy(mask).to(device)
    decoder.temperature_B.fill_(temperature)
    _advance(decoder, tokens - 1)
    return decoder.tokens_BL, length


def _advance(decoder: Decoder, steps: int) -> None:
    """Take steps, on an NVIDIA device as replays of one captured step."""
    if decoder.tokens_BL.device.type == "cpu":
        for _ in range(steps):
            decoder.step()
        return
    for _ in range(3):
        decoder.step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decoder.step()
    for _ in range(steps - 3):
        graph.replay()
    torch.cuda.synchronize()


def observe(network: Network, w: Tensors, rows_RT: torch.Tensor, batch_rows: int) -> Material:
    """Features and final states of all rows; the row count must divide by ``batch_rows``."""
    device = rows_RT.device
    inputs = rows_RT[:batch_rows].clone()

    def once() -> tuple[torch.Tensor, torch.Tensor]:
        batch = Batch.packed(inputs, network.config.bos_token_id)
        out = network(w, batch, Dropout.none(device), torch.zeros((), device=device))
        shape = inputs.shape
        return (
            out.features_NX.detach().unflatten(0, shape),
            out.hidden_NC.detach().unflatten(0, shape),
        )

    replay = None
    if device.type == "cuda":
        once()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = once()
        replay = graph.replay
    features, hidden = [], []
    for part in rows_RT.split(batch_rows):
        inputs.copy_(part)
        if replay is None:
            found = once()
        else:
            replay()
            found = captured
        features.append(found[0].clone())
        hidden.append(found[1].clone())
    return Material(
        tokens_RT=rows_RT, features_RTX=torch.cat(features), hidden_RTC=torch.cat(hidden)
    )
