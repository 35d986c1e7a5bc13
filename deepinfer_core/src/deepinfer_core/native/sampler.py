"""How does a row of logits become a token with the compiled kernels?

The rules are those of ``core.reference``, and so are the tokens: probabilities come from the same
torch operations, random numbers and whole-number weights are the same, also of drafts. What is
saved are the sorts, as a row is put in order only around the place where its truncation ends, and
the passes over tables of whole numbers.

Shapes: R rows, V vocabulary, A alternatives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.sampler import (
    DraftedRows,
    SamplerOutputs,
    SamplerRows,
    SamplerSpec,
    Verdicts,
)
from deepinfer_core.native.addresses import address
from deepinfer_core.native.library import bind, open_library
from deepinfer_core.plugin import BuildContext
from deepinfer_core.reference.logits_rules import adjusted
from deepinfer_core.reference.sampler import ReferenceSampler, SamplerPlan

__all__ = ["CpuSampler", "build"]

_TILE_ELEMENTS = 1 << 20
"""Logits at a time; each takes about five fp64 numbers."""

_FP32, _FP64, _BOOL = torch.float32, torch.float64, torch.bool
_INT32, _INT64 = torch.int32, torch.int64


class _Work(NamedTuple):
    """A tile of rows, fp64: logits as they came and adjusted; survivors and their probabilities.

    The last two are of rows that draw, and None if none does.
    """

    raw_RV: torch.Tensor
    adjusted_RV: torch.Tensor
    kept_RV: torch.Tensor | None
    share_RV: torch.Tensor | None


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
        self._draw_drafts = bind(library, "di_draw_drafts", "ppllpppppp")
        self._verify = bind(library, "di_verify", "ppllpppppppppp")

    def run(
        self, plan: Plan, logits_RV: torch.Tensor, rows: SamplerRows, out: SamplerOutputs
    ) -> None:
        """Sample, a tile of rows at a time."""
        assert isinstance(plan, SamplerPlan)
        for tile in _tiles(logits_RV):
            settings, found = rows.tile(tile), out.tile(tile)
            work = self._work(logits_RV[tile], settings, found.invalid_R)
            self._draw_rows(work, settings, settings.forced_R, found, plan.spec)

    def verify(
        self,
        plan: Plan,
        logits_RV: torch.Tensor,
        rows: SamplerRows,
        drafted: DraftedRows,
        out: SamplerOutputs,
        verdicts: Verdicts,
    ) -> None:
        """Verify, a tile of rows at a time; the rest is an ordinary draw of what is left open."""
        assert isinstance(plan, SamplerPlan)
        for tile in _tiles(logits_RV):
            settings, found = rows.tile(tile), out.tile(tile)
            work = self._work(logits_RV[tile], settings, found.invalid_R)
            token_R = self._judge(work, settings, drafted.tile(tile), verdicts.tile(tile))
            self._draw_rows(work, settings, token_R, found, plan.spec)

    def draw_drafts(
        self,
        plan: Plan,
        logits_RV: torch.Tensor,
        rows: SamplerRows,
        law_row_R: torch.Tensor,
        law_PV: torch.Tensor,
        token_R: torch.Tensor,
    ) -> None:
        """Draw, a tile of rows at a time."""
        for tile in _tiles(logits_RV):
            settings = rows.tile(tile)
            count, vocabulary = shape = logits_RV[tile].shape
            work = self._work(logits_RV[tile], settings, torch.empty(count, dtype=_BOOL))
            self._draw_drafts(
                work.adjusted_RV.data_ptr(),
                None if work.share_RV is None else work.share_RV.data_ptr(),
                *shape,
                address(settings.temperature_R, _FP32, (count,)),
                address(settings.seed_R, _INT64, (count,)),
                address(settings.position_R, _INT64, (count,)),
                address(law_row_R[tile], _INT64, (count,)),
                address(law_PV, _INT32, (law_PV.shape[0], vocabulary)),
                address(token_R[tile], _INT64, (count,)),
            )

    def _judge(
        self, work: _Work, rows: SamplerRows, drafted: DraftedRows, verdicts: Verdicts
    ) -> torch.Tensor:
        """Accept or replace drafts; gives the token of each row, -1 where it is to be drawn."""
        count, vocabulary = shape = work.adjusted_RV.shape
        token_R, laws = torch.empty(count, dtype=_INT64), drafted.law_PV
        self._verify(
            work.adjusted_RV.data_ptr(),
            None if work.share_RV is None else work.share_RV.data_ptr(),
            *shape,
            address(rows.temperature_R, _FP32, (count,)),
            address(rows.seed_R, _INT64, (count,)),
            address(rows.position_R, _INT64, (count,)),
            address(rows.forced_R, _INT64, (count,)),
            address(drafted.draft_R, _INT64, (count,)),
            address(drafted.law_row_R, _INT64, (count,)),
            None if laws is None else address(laws, _INT32, (laws.shape[0], vocabulary)),
            token_R.data_ptr(),
            address(verdicts.accepted_R, _BOOL, (count,)),
            address(verdicts.overlap_R, _FP32, (count,)),
        )
        return token_R

    def _work(self, logits_RV: torch.Tensor, rows: SamplerRows, invalid_R: torch.Tensor) -> _Work:
        """What a tile is drawn from; says which rows are invalid."""
        count, vocabulary = logits_RV.shape
        raw_RV = logits_RV.to(_FP64).contiguous()
        adjusted_RV = adjusted(raw_RV, rows)
        invalid = address(invalid_R, _BOOL, (count,))
        self._flag(raw_RV.data_ptr(), adjusted_RV.data_ptr(), count, vocabulary, invalid)
        if bool(invalid_R.any()):
            # They go on as rows of zeros: their results are unspecified, but must not fail.
            raw_RV = raw_RV.masked_fill(invalid_R[:, None], 0)
            adjusted_RV = adjusted_RV.masked_fill(invalid_R[:, None], 0)
        return _Work(raw_RV, adjusted_RV, *self._survivors(adjusted_RV, rows))

    def _draw_rows(
        self,
        work: _Work,
        rows: SamplerRows,
        forced_R: torch.Tensor,
        out: SamplerOutputs,
        spec: SamplerSpec,
    ) -> None:
        """Draw the rows that nothing is forced on, and report all."""
        raw_RV, adjusted_RV, kept_RV, share_RV = work
        count, vocabulary = raw_RV.shape
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
            address(forced_R, _INT64, (count,)),
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


def _tiles(logits_RV: torch.Tensor) -> Iterator[slice]:
    rows, vocabulary = logits_RV.shape
    tile_rows = max(_TILE_ELEMENTS // max(vocabulary, 1), 1)
    for start in range(0, rows, tile_rows):
        yield slice(start, start + tile_rows)


def build(options: None, context: BuildContext) -> CpuSampler:
    """Build the component; it has no options.

    Args:
        options: None.
        context: ``cache_dir`` has the compiled kernels.
    """
    return CpuSampler(context.cache_dir)
