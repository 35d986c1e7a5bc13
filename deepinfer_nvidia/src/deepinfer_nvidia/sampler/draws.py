"""Which kernels draw from a tile of rows, and in which order?

One kernel reads the logits and sums up segments of them; the next draws from every row whose
truncation ends among its best few hundred tokens, as top-k up to 256 and most settings of top-p do.
Rows that are not decided there are cut, weighed and drawn from by three more kernels, which are
launched always and do nothing for the others, so that a call never waits for the device. Masks and
rules are applied to a copy of the logits.

Shapes: R rows, V vocabulary, P rows of kept laws.
"""

from __future__ import annotations

from typing import Any

import torch
from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.interfaces.operators.sampler import (
    ApplyRulesSpec,
    MaskLogitsSpec,
    SampleSpec,
    TopLogprobsSpec,
)
from deepinfer_core.interfaces.sampler import SamplerOutputs, SamplerRows

from deepinfer_nvidia.kernels import (
    sampler_apply_rules,
    sampler_cut_rows,
    sampler_draw_chunks,
    sampler_mask_logits,
    sampler_scan_logits,
    sampler_top_logprobs,
    sampler_truncate_draw,
    sampler_weigh_chunks,
    sampler_write_laws,
)
from deepinfer_nvidia.sampler.arguments import NAMES, columns
from deepinfer_nvidia.sampler.workspace import (
    KeptLaws,
    SamplerWorkspace,
    TileLangSamplerPlan,
    typed_rows,
)

__all__ = ["Draws"]

Tensors = dict[str, torch.Tensor]


class Draws:
    """Draws with the portable generator.

    Args:
        kernels: runs them.
    """

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels

    def sample(
        self,
        plan: TileLangSamplerPlan,
        raw_RV: torch.Tensor,
        rows: SamplerRows,
        out: SamplerOutputs,
        kept: KeptLaws | None = None,
    ) -> Tensors:
        """Draw from a tile of rows, and keep their laws if somebody says where.

        Returns:
            The logits, those that were drawn from and the model's own, by the names that kernels
            call them.
        """
        work, count = plan.workspace, raw_RV.shape[0]
        raw = work.raw.arguments(count, raw_RV.dtype)
        logits_RV = self._adjusted(plan, raw_RV, rows)
        spec = SampleSpec(
            vocabulary=raw_RV.shape[1],
            dtype=NAMES[logits_RV.dtype],
            raw_dtype=NAMES[raw_RV.dtype],
        )
        laws = columns(rows, "temperature_R", "top_p_R", "top_k_R")
        if logits_RV is raw_RV:
            self._scan(raw_RV, laws, raw)
            scan = raw
        else:
            self._scan(raw_RV, {**laws, "temperature_R": work.zero_R[:count]}, raw)
            scan = work.adjusted.arguments(count, logits_RV.dtype)
            self._scan(logits_RV, laws, scan)
        logits = {"raw_logits_RV": raw_RV, "logits_RV": logits_RV}
        self._draw(work, spec, logits, raw, scan, rows, out)
        if plan.spec.alternatives:
            self._alternatives(plan, raw_RV, raw["group_RG"], out)
        if kept is not None:
            self.call(
                sampler_write_laws,
                spec,
                logits_RV=logits_RV,
                **columns(rows, "temperature_R", "min_p_R"),
                **work.rows(count, "peak_R", "cut_value_R", "cut_token_R", "kept_total_R"),
                **{name: scan[name] for name in ("peak_RS", "peak_token_RS")},
                invalid_R=out.invalid_R,
                law_row_R=kept.law_row_R,
                law_PV=kept.law_PV,
            )
        return logits

    def _adjusted(
        self, plan: TileLangSamplerPlan, raw_RV: torch.Tensor, rows: SamplerRows
    ) -> torch.Tensor:
        """The logits to draw from; the raw ones if nothing is to be changed."""
        mask, rules = rows.allowed_RW, rows.rules
        if mask is None and rules is None:
            return raw_RV
        count, vocabulary = raw_RV.shape
        dtype = raw_RV.dtype if rules is None else torch.float64
        logits_RV = typed_rows(plan.workspace.adjusted_XV, count, dtype)
        if mask is None:
            logits_RV.copy_(raw_RV)
        else:
            self.call(
                sampler_mask_logits,
                MaskLogitsSpec(
                    vocabulary=vocabulary, raw_dtype=NAMES[raw_RV.dtype], dtype=NAMES[dtype]
                ),
                raw_logits_RV=raw_RV,
                allowed_RW=mask.contiguous(),
                logits_RV=logits_RV,
            )
        if rules is not None:
            lists = ("bias_token_RB", "bias_RB", "seen_token_RN", "output_count_RN")
            self.call(
                sampler_apply_rules,
                ApplyRulesSpec(vocabulary=vocabulary),
                **columns(rules, *lists, "repetition_R", "frequency_R", "presence_R"),
                logits_RV=logits_RV,
            )
        return logits_RV

    def _scan(self, logits_RV: torch.Tensor, laws: Tensors, found: Tensors) -> None:
        name = NAMES[logits_RV.dtype]
        spec = SampleSpec(vocabulary=logits_RV.shape[1], dtype=name, raw_dtype=name)
        self.call(sampler_scan_logits, spec, logits_RV=logits_RV, **laws, **found)

    def _draw(
        self,
        work: SamplerWorkspace,
        spec: SampleSpec,
        logits: Tensors,
        raw: Tensors,
        scan: Tensors,
        rows: SamplerRows,
        out: SamplerOutputs,
    ) -> None:
        count = logits["logits_RV"].shape[0]
        keys = columns(rows, "seed_R", "position_R", "forced_R")
        laws = columns(rows, "temperature_R", "top_p_R", "top_k_R", "min_p_R")
        drawn = {
            "token_R": out.token_R,
            "logprob_R": out.logprob_R,
            "processed_logprob_R": out.processed_logprob_R,
        }
        self.call(
            sampler_truncate_draw,
            spec,
            **logits,
            **laws,
            **keys,
            **{f"raw_{name}": raw[name] for name in ("peak_RS", "sum_RS", "bad_RS")},
            **{
                name: scan[name]
                for name in ("peak_RS", "peak_token_RS", "scaled_sum_RS", "group_RG")
            },
            **drawn,
            invalid_R=out.invalid_R,
            **work.rows(count, "log_total_R", "peak_R", "total_R", "pending_R"),
            **work.rows(count, "cut_value_R", "cut_token_R", "kept_total_R"),
        )
        self._draw_pending(work, spec, logits, laws, keys, drawn)

    def _draw_pending(
        self,
        work: SamplerWorkspace,
        spec: SampleSpec,
        logits: Tensors,
        laws: Tensors,
        keys: Tensors,
        drawn: Tensors,
    ) -> None:
        """What is left; nothing for most rows."""
        count, logits_RV = logits["logits_RV"].shape[0], logits["logits_RV"]
        thin = {name: laws[name] for name in ("temperature_R", "min_p_R")}
        pending = work.rows(count, "peak_R", "pending_R")
        cut = work.rows(count, "cut_value_R", "cut_token_R", "kept_total_R")
        chunks = work.rows(count, "chunk_RG")
        total = work.rows(count, "total_R")
        self.call(sampler_cut_rows, spec, logits_RV=logits_RV, **laws, **pending, **total, **cut)
        thin |= pending | cut | chunks
        self.call(sampler_weigh_chunks, spec, logits_RV=logits_RV, **thin)
        log_total = work.rows(count, "log_total_R")
        self.call(sampler_draw_chunks, spec, **logits, **thin, **keys, **log_total, **drawn)

    def _alternatives(
        self,
        plan: TileLangSamplerPlan,
        raw_RV: torch.Tensor,
        group_RG: torch.Tensor,
        out: SamplerOutputs,
    ) -> None:
        name = NAMES[raw_RV.dtype]
        self.call(
            sampler_top_logprobs,
            TopLogprobsSpec(
                vocabulary=raw_RV.shape[1],
                dtype=name,
                raw_dtype=name,
                alternatives=plan.spec.alternatives,
            ),
            raw_logits_RV=raw_RV,
            group_RG=group_RG,
            log_total_R=plan.workspace.log_total_R[: raw_RV.shape[0]],
            invalid_R=out.invalid_R,
            top_token_RA=out.top_token_RA,
            top_logprob_RA=out.top_logprob_RA,
        )

    def call(self, kernel: Any, spec: Any, **tensors: torch.Tensor) -> None:
        """Run the kernel of a file."""
        self._kernels.call(kernel.build, spec, kernel.default_tuning(spec), **tensors)
