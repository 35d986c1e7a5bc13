"""How well does the network predict held-out text, source by source?

Bits per byte of a source: the summed -log2 probability of every token after BOS (text, control
tokens and the final EOS), divided by the UTF-8 bytes of the contents alone. Each document is
scored on its own, from its own BOS.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from .dropout import Dropout
from .network import Network
from .positions import Batch
from .rows import Valid

__all__ = ["bits_per_byte", "token_losses"]

Tensors = dict[str, torch.Tensor]


def token_losses(
    hidden_NC: torch.Tensor, head_VC: torch.Tensor, tokens_BT: torch.Tensor, bos: int, pad: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Negative log-likelihood of each row's next token.

    Args:
        hidden_NC: final hidden states, N = B T.
        head_VC: output matrix.
        tokens_BT: the rows.
        bos: never a target: it begins another document.
        pad: never a target.

    Returns:
        Losses in nats [B, T], 0 where there is no target; the mask of targets [B, T].
    """
    target = F.pad(tokens_BT[:, 1:], (0, 1), value=pad)
    mask = (target != bos) & (target != pad) & (tokens_BT != pad)
    logits = hidden_NC.float() @ head_VC.float().T
    loss = F.cross_entropy(logits, target.flatten(), reduction="none").unflatten(0, target.shape)
    return torch.where(mask, loss, 0.0), mask


def bits_per_byte(
    network: Network, w: Tensors, valid: Valid, batch_rows: int, losses=token_losses
) -> dict[str, float]:
    """Bits per byte of every source, dropout off, selection sparse.

    Args:
        network: backbone.
        w: prepared weights.
        valid: held-out rows, a multiple of ``batch_rows``.
        batch_rows: rows of one pass; equal to training's to reuse its compiled stages.
        losses: `token_losses` or its compiled form.
    """
    config = network.config
    device = valid.rows_RT.device
    total = torch.zeros(len(valid.source_D) + 1, device=device, dtype=torch.float64)
    for rows, owner in zip(
        valid.rows_RT.split(batch_rows), valid.document_RT.split(batch_rows), strict=True
    ):
        batch = Batch.packed(rows, config.bos_token_id)
        out = network(w, batch, Dropout.none(device), torch.zeros((), device=device))
        loss, _ = losses(out.hidden_NC, w["head"], rows, config.bos_token_id, config.pad_token_id)
        total.index_add_(0, owner.flatten() + 1, loss.detach().flatten().double())
    nats = total[1:].cpu().numpy()
    found = {}
    for n, name in enumerate(valid.names):
        mine = valid.source_D == n
        found[name] = float(nats[mine].sum() / np.log(2) / valid.bytes_D[mine].sum())
    both = np.isin(valid.source_D, [valid.names.index(n) for n in ("books", "tales")])
    found["books+tales"] = float(nats[both].sum() / np.log(2) / valid.bytes_D[both].sum())
    return found
