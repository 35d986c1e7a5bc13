"""How do an attention's queries and window key come about, and how does its output get back?

The same for every layer of the backbone and of the drafter: a low-rank query, one key a token that
is value as well and serves all heads, and an output projection that is block diagonal over groups
of heads.

Shapes: T rows, D hidden width, K query rank, N heads, W head width.
"""

from dataclasses import dataclass

import torch

from deepinfer_core.model.operators import Linear
from deepinfer_core.model.rope import Rotation
from deepinfer_core.model.row_operators import RowOperators

__all__ = ["AttentionProjections"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionProjections:
    """The projections of one attention.

    Attributes:
        rows: row operators.
        heads: N.
        query_down: hidden to query rank.
        query_norm_K: weight of the norm between the two query projections.
        query_up: query rank to all heads.
        key: hidden to one head.
        key_norm_W: weight of the key's norm.
        group_out: each group of heads to its output rank.
        out: output ranks to hidden.
        sink_N: fp32 logit of each head's sink.
    """

    rows: RowOperators
    heads: int
    query_down: Linear
    query_norm_K: torch.Tensor
    query_up: Linear
    key: Linear
    key_norm_W: torch.Tensor
    group_out: Linear
    out: Linear
    sink_N: torch.Tensor

    def query_latent(self, x_TD: torch.Tensor) -> torch.Tensor:
        """Return the normed query latent of rows for products, [T, K], for products."""
        return self.rows.norm_for_product(self.query_down(x_TD), self.query_norm_K)

    def queries(self, latent_TK: torch.Tensor, by: Rotation) -> torch.Tensor:
        """Return rotated queries, [T, N, W]."""
        return self.rows.rotate(
            self.query_up(latent_TK).view(-1, self.heads, self.key_norm_W.shape[0]), by
        )

    def window_key(self, x_TD: torch.Tensor, by: Rotation) -> torch.Tensor:
        """Return the normed and rotated key of rows for products, [T, W].

        It is not yet in its cache format.
        """
        return self.rows.norm_rotate(self.key(x_TD), self.key_norm_W, by)

    def output(self, attended_TNW: torch.Tensor, by: Rotation) -> torch.Tensor:
        """Turn values back by the query's position and project them to [T, D].

        That makes the rotary part of the values relative. Overwrites ``attended_TNW``.
        """
        values_TX = self.rows.rotate_for_product(attended_TNW, by, inverse=True)
        return self.out(self.rows.for_product(self.group_out(values_TX)))
