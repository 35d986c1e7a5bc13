"""How does each draft depend on the one before it, and how far is it to be trusted?

Shapes: Q sequences, n drafts a sequence, D hidden width, M width of the Markov embedding, V
vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from deepinfer_core.model.embedding import embed
from deepinfer_core.model.operators import Linear
from deepinfer_core.model.row_operators import RowOperators
from deepinfer_core.numeric import QuantTensor

__all__ = ["MarkovHead"]

_LARGEST_LOGIT = 60.0  # beyond it a confidence is 0 or 1 in fp32 anyway
_LOWEST_TEMPERATURE = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkovHead:
    """The sequential part of the drafter.

    Attributes:
        rows: fixes the dtypes.
        embedding: [V, M] of the preceding token.
        head: M to logits, accumulation dtype.
        confidence: hidden and M, side by side, to one logit, accumulation dtype.
        temperatures: one a draft, dividing the confidence's logit.
    """

    rows: RowOperators
    embedding: QuantTensor
    head: Linear
    confidence: Linear
    temperatures: tuple[float, ...]

    def extend(
        self,
        base_QnV: torch.Tensor,
        hidden_QnD: torch.Tensor,
        anchor_token_Q: torch.Tensor,
        choose: Callable[[torch.Tensor, int], torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Choose one draft after the other.

        Args:
            base_QnV: logits of the block.
            hidden_QnD: the block's states in front of the last norm.
            anchor_token_Q: the token before the first draft.
            choose: picks tokens from logits.

        Returns:
            Ids [Q, n] and logits of confidences [Q, n].
        """
        tokens, logits = [], []
        token_Q = anchor_token_Q
        for number in range(base_QnV.shape[1]):
            before_QM = embed(self.embedding, token_Q, self.rows.compute)
            logit_Q1 = self.confidence(torch.cat((hidden_QnD[:, number], before_QM), dim=-1))
            token_Q = choose(base_QnV[:, number] + self.head(before_QM), number)
            tokens.append(token_Q)
            logits.append(logit_Q1[:, 0])
        return torch.stack(tokens, dim=1), torch.stack(logits, dim=1)

    def confidences(self, logit_Qn: torch.Tensor) -> torch.Tensor:
        """How likely each draft is accepted if all before it are, by the checkpoint's temperatures.

        Args:
            logit_Qn: as ``extend`` gives them.
        """
        scaled = [
            logit_Q / max(temperature, _LOWEST_TEMPERATURE)
            for logit_Q, temperature in zip(logit_Qn.unbind(1), self.temperatures, strict=False)
        ]
        return torch.stack(scaled, dim=1).clamp(-_LARGEST_LOGIT, _LARGEST_LOGIT).sigmoid()
