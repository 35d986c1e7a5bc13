"""What do the suites of the sampler share: rows of settings, a guarded call and many draws?

Shapes: R rows, V vocabulary, A alternatives.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from deepinfer_core.interfaces.sampler import Sampler, SamplerOutputs, SamplerRows, SamplerSpec
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.sampler_settings import Settings, sampler_rows
from deepinfer_core.testing.contracts.suite import ContractSuite, GuardedBuffer

__all__ = ["GOLDEN", "TOLERANCE", "SamplerSuite"]

GOLDEN = [2.0, 1.0, 1.0, 0.0]
TOLERANCE = 2e-6
"""fp32 log-probabilities of at most 30: rounding the result costs 30 * 2^-24 = 1.8e-6."""


class SamplerSuite(ContractSuite):
    """Rows and calls."""

    def rows(self, settings: list[Settings], allowed: list[list[int]] | None = None) -> SamplerRows:
        """Settings as tensors; ``allowed`` lists the tokens of each row."""
        return sampler_rows(settings, allowed, self.device)

    def sample(
        self,
        component: Sampler,
        logits_RV: torch.Tensor,
        rows: SamplerRows,
        alternatives: int = 0,
    ) -> SamplerOutputs:
        """Run into guarded buffers; logits are read only."""
        count, vocabulary = logits_RV.shape
        logits_RV = logits_RV.to(self.device)
        shapes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            "token_R": ((count,), torch.int64),
            "logprob_R": ((count,), torch.float32),
            "processed_logprob_R": ((count,), torch.float32),
            "top_token_RA": ((count, alternatives), torch.int64),
            "top_logprob_RA": ((count, alternatives), torch.float32),
            "invalid_R": ((count,), torch.bool),
        }
        buffers = {
            name: GuardedBuffer(shape, dtype, self.device)
            for name, (shape, dtype) in shapes.items()
        }
        plan = component.plan(
            SamplerSpec(vocabulary=vocabulary, alternatives=alternatives), max(count, 1)
        )
        before = logits_RV.clone()
        out = SamplerOutputs(**{name: buffer.tensor for name, buffer in buffers.items()})
        component.run(plan, logits_RV, rows, out)
        assert_same_bits(logits_RV, before)
        return SamplerOutputs(**{name: buffer.check().cpu() for name, buffer in buffers.items()})

    def draws(
        self,
        component: Sampler,
        logits: list[float],
        settings: Settings,
        count: int,
        allowed: list[int] | None = None,
    ) -> torch.Tensor:
        """Tokens at positions 0 to ``count`` - 1."""
        rows = [replace(settings, position=position) for position in range(count)]
        logits_RV = torch.tensor(logits).expand(count, -1).contiguous()
        mask = None if allowed is None else [allowed] * count
        return self.sample(component, logits_RV, self.rows(rows, mask)).token_R
