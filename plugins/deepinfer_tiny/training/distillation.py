"""How does a network learn from the distributions of earlier ones?

Several networks trained on the same small corpus err differently; their mean is better than each,
and a network that follows the mean overfits less than one that follows single tokens.
"""

from __future__ import annotations

import torch

__all__ = ["soft_losses"]


def soft_losses(
    hidden_NC: torch.Tensor,
    head_VC: torch.Tensor,
    teacher_hidden: list[torch.Tensor],
    teacher_head: list[torch.Tensor],
) -> torch.Tensor:
    """Cross entropy [N] to the mean distribution of the teachers.

    Args:
        hidden_NC: final states of the learner.
        head_VC: its output matrix.
        teacher_hidden: final states of each teacher, detached.
        teacher_head: their output matrices, detached.
    """
    log_q = torch.log_softmax(hidden_NC.float() @ head_VC.float().T, dim=-1)
    target = 0.0
    for hidden, head in zip(teacher_hidden, teacher_head, strict=True):
        target = target + torch.softmax(hidden.float() @ head.float().T, dim=-1)
    return -(target * log_q).sum(-1) / len(teacher_hidden)
