"""How does a row of logits become a token with the compiled kernels?

The rules are those of ``core.reference``, and so are the tokens: probabilities come from the same
torch operations, random numbers and whole-number weights are the same. What is saved are the sorts:
a row is put in order only around the place where its truncation ends.

Shapes: R rows, V vocabulary, A alternatives.
"""

from __future__ import annotations

import torch

from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.sampler import (
    SamplerOutputs,
    SamplerRows,
    SamplerSpec,
)
from deepinfer_core.native.addresses import address
from deepinfer_core.native.library import bind, open_library
from deepinfer_core.plugin import BuildContext
from deepinfer_core.reference.logits_rules import adjusted
from deepinfer_core.reference.sampler import ReferenceSampler, SamplerPlan

__all__ = ["CpuSampler", "build"]

_TILE_ELEMENTS = 1 << 20
"""Logits at a time; each takes about five fp64 numbers."""

_FP32, _FP64, _INT64, _BOOL = torch.float32, torch.float64, torch.int64, torch.bool


class CpuSampler(ReferenceSampler):
    """Draws with the portable generator, planned as by the reference.

    Args:
        cache_dir: folder of compiled kernels.

    Raises:
        DeviceError: the kernels cannot be compiled or loaded.
    """

    def __init__(self, cache_dir: str) -> None:
        library = open_library(cache_dir)
        self._flag = bind(library, "di_flag_rows", "ppllp")
        self._truncate = bind(library, "di_truncate", "pppllppppp")
        self._draw = bind(library, "di_draw", "ppppllppppppp")
        self._alternatives = bind(library, "di_alternatives", "pplllpp")

    def run(
        self, plan: Plan, logits_RV: torch.Tensor, rows: SamplerRows, out: SamplerOutputs
    ) -> None:
        """Sample, a tile of rows at a time."""
        assert isinstance(plan, SamplerPlan)
        count, vocabulary = logits_RV.shape
        tile_rows = max(_TILE_ELEMENTS // max(vocabulary, 1), 1)
        if count <= tile_rows:
            self._sample(logits_RV, rows, out, plan.spec)
            return
        for start in range(0, count, tile_rows):
            tile = slice(start, start + tile_rows)
            self._sample(logits_RV[tile], rows.tile(tile), out.tile(tile), plan.spec)

    def _sample(
        self, logits_RV: torch.Tensor, rows: SamplerRows, out: SamplerOutputs, spec: SamplerSpec
    ) -> None:
        count, vocabulary = logits_RV.shape
        raw_RV = logits_RV.to(_FP64).contiguous()
        adjusted_RV = adjusted(raw_RV, rows)
        invalid = address(out.invalid_R, _BOOL, (count,))
        self._flag(raw_RV.data_ptr(), adjusted_RV.data_ptr(), count, vocabulary, invalid)
        if bool(out.invalid_R.any()):
            # They go on as rows of zeros: their results are unspecified, but must not fail.
            raw_RV = raw_RV.masked_fill(out.invalid_R[:, None], 0)
            adjusted_RV = adjusted_RV.masked_fill(out.invalid_R[:, None], 0)
        kept_RV, share_RV = self._survivors(adjusted_RV, rows)
        law_RV = raw_RV.log_softmax(-1)
        self._draw(
            adjusted_RV.data_ptr(),
            None if kept_RV is None else kept_RV.data_ptr(),
            None if share_RV is None else share_RV.data_ptr(),
            law_RV.data_ptr(),
            count,
            vocabulary,
            address(rows.temperature_R, _FP32, (count,)),
            address(rows.seed_R, _INT64, (count,)),
            address(rows.position_R, _INT64, (count,)),
            address(rows.forced_R, _INT64, (count,)),
            address(out.token_R, _INT64, (count,)),
            address(out.logprob_R, _FP32, (count,)),
            address(out.processed_logprob_R, _FP32, (count,)),
        )
        if spec.alternatives:
            shape = (count, spec.alternatives)
            self._alternatives(
                raw_RV.data_ptr(),
                law_RV.data_ptr(),
                count,
                vocabulary,
                spec.alternatives,
                address(out.top_token_RA, _INT64, shape),
                address(out.top_logprob_RA, _FP32, shape),
            )

    def _survivors(
        self, adjusted_RV: torch.Tensor, rows: SamplerRows
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Logits over temperature, -inf where dropped, and their probabilities.

        None, twice, if no row draws.
        """
        is_greedy_R = rows.temperature_R == 0
        if bool(is_greedy_R.all()):
            return None, None
        count, vocabulary = adjusted_RV.shape
        temperature_R = rows.temperature_R.to(_FP64).masked_fill(is_greedy_R, 1)
        kept_RV = adjusted_RV / temperature_R[:, None]
        share_RV = kept_RV.softmax(-1)
        to_best_RV = None
        if bool((rows.min_p_R > 0).any()):
            to_best_RV = torch.exp(kept_RV - kept_RV.amax(-1, keepdim=True))
        changed_R = torch.empty(count, dtype=_BOOL)
        self._truncate(
            kept_RV.data_ptr(),
            share_RV.data_ptr(),
            None if to_best_RV is None else to_best_RV.data_ptr(),
            count,
            vocabulary,
            address(rows.temperature_R, _FP32, (count,)),
            address(rows.top_p_R, _FP32, (count,)),
            address(rows.top_k_R, _INT64, (count,)),
            address(rows.min_p_R, _FP32, (count,)),
            changed_R.data_ptr(),
        )
        return kept_RV, kept_RV.softmax(-1) if bool(changed_R.any()) else share_RV


def build(options: None, context: BuildContext) -> CpuSampler:
    """Build the component; it has no options.

    Args:
        options: None.
        context: ``cache_dir`` has the compiled kernels.
    """
    return CpuSampler(context.cache_dir)
