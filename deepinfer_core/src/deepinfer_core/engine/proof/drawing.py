"""Which trial shows that the sampler treats every row alike?

Shapes: N rows of a batch, P rows of the pool, V vocabulary, A alternatives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import torch

from deepinfer_core.engine.proof.samples import Samples
from deepinfer_core.engine.proof.trial import POOL_ROWS, Trial
from deepinfer_core.interfaces.sampler import (
    LogitsRules,
    Sampler,
    SamplerOutputs,
    SamplerRows,
    SamplerSpec,
)

__all__ = ["sampler_trials"]

_ALTERNATIVES = 3
_MOST_ROWS = 65


def sampler_trials(samples: Samples, sampler: Sampler) -> Iterator[Trial]:
    """Greedy and drawn rows with truncations, bias and penalties side by side."""
    vocabulary = samples.model.config.text_config.vocab_size
    spec = SamplerSpec(vocabulary=vocabulary, alternatives=min(_ALTERNATIVES, vocabulary))
    dtype = samples.model.rows.accumulate
    logits_PV = samples.even_rows(POOL_ROWS, vocabulary, dtype=dtype)
    settings = _settings(samples, vocabulary)

    def run(order: torch.Tensor) -> list[torch.Tensor]:
        rows, out = _rows_of(settings, order), _outputs(len(order), spec, samples.device)
        sampler.run(sampler.plan(spec, len(order)), logits_PV[order], rows, out)
        return [getattr(out, field.name) for field in fields(out)]

    yield Trial(
        kind="sampler",
        slot="sampler",
        operator=f"draws among {vocabulary} tokens",
        run=run,
        most_rows=_MOST_ROWS,
        plan=lambda rows: sampler.plan(spec, rows),
    )


def _settings(samples: Samples, vocabulary: int) -> SamplerRows:
    """One row of the pool in four is greedy, one has penalties, one is truncated, one is plain."""
    device = samples.device
    row_P = torch.arange(POOL_ROWS)

    def every(place: int, value: float, otherwise: float) -> torch.Tensor:
        chosen_P = torch.full((POOL_ROWS,), otherwise)
        return chosen_P.masked_fill(row_P % 4 == place, value).to(device)

    return SamplerRows(
        temperature_R=every(0, 0.0, 1.0),
        top_p_R=every(2, 0.9, 1.0),
        top_k_R=every(2, min(40, vocabulary), -1).to(torch.int64),
        min_p_R=every(2, 0.01, 0.0),
        seed_R=(row_P // 2 * 7919).to(device),
        position_R=(row_P * 31).to(device),
        forced_R=torch.full((POOL_ROWS,), -1, dtype=torch.int64, device=device),
        rules=LogitsRules(
            bias_token_RB=samples.integers(0, vocabulary, POOL_ROWS, 1),
            bias_RB=every(1, 2.0, 0.0)[:, None],
            seen_token_RN=samples.integers(0, vocabulary, POOL_ROWS, 1),
            output_count_RN=torch.ones((POOL_ROWS, 1), dtype=torch.int64, device=device),
            repetition_R=every(1, 1.25, 1.0),
            frequency_R=every(1, 0.5, 0.0),
            presence_R=every(1, 0.25, 0.0),
        ),
    )


def _rows_of(settings: SamplerRows, order: torch.Tensor) -> SamplerRows:
    rules = settings.rules
    assert rules is not None
    picked = {
        field.name: getattr(settings, field.name)[order]
        for field in fields(settings)
        if field.name not in ("allowed_RW", "rules")
    }
    of_rows = {field.name: getattr(rules, field.name)[order] for field in fields(rules)}
    return SamplerRows(**picked, rules=LogitsRules(**of_rows))


def _outputs(rows: int, spec: SamplerSpec, device: torch.device) -> SamplerOutputs:
    def zeros(*shape: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    return SamplerOutputs(
        token_R=zeros(rows, dtype=torch.int64),
        logprob_R=zeros(rows, dtype=torch.float32),
        processed_logprob_R=zeros(rows, dtype=torch.float32),
        top_token_RA=zeros(rows, spec.alternatives, dtype=torch.int64),
        top_logprob_RA=zeros(rows, spec.alternatives, dtype=torch.float32),
        invalid_R=zeros(rows, dtype=torch.bool),
    )
