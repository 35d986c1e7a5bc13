"""How likely is a draft accepted if all before it are, by the logit of its confidence?

Shapes: Q sequences (or any other leading shape), n drafts.
"""

from __future__ import annotations

import torch

__all__ = ["confidences"]

_LARGEST_LOGIT = 60.0
"""Beyond it a confidence is 0 or 1 in fp32 anyway."""


def confidences(logit_Qn: torch.Tensor, temperature_n: torch.Tensor) -> torch.Tensor:
    """Scale and squash, in the dtype of the logits.

    Args:
        logit_Qn: as the network gave them.
        temperature_n: above 0, divides the logits of each draft.
    """
    return (logit_Qn / temperature_n).clamp(-_LARGEST_LOGIT, _LARGEST_LOGIT).sigmoid()
