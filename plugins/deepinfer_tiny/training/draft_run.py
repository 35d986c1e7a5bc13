"""How does the drafter's part of a run go: material, steps, judgement?"""

from __future__ import annotations

import argparse
import dataclasses
import time
from typing import Any

import numpy as np
import torch

from .backbone_training import BackboneTrainer, is_backbone
from .draft_evaluation import calibration_error, fit_temperature, greedy_rounds
from .draft_training import DraftTrainer, Material, batches
from .precision import prepare
from .rows import SHORT_TOKENS, load_plan
from .stages import Stages
from .writing import observe, write_texts

__all__ = ["train"]

_ROWS = 16
_TEXT_TOKENS = 512
_TEMPERATURES = (0.0, 0.5, 1.0)  # the texts that the backbone writes
_CORPUS_ROWS = 1008  # rows of the corpus mixed in, of 2,048 tokens
_RATES = (0.01, 2e-3)
_GREEDY_SHARE = 0.5
_ANCHORS = 128


def _multiple(rows: torch.Tensor, of: int) -> torch.Tensor:
    return rows[: len(rows) // of * of]


def _material(
    trainer: BackboneTrainer, plain: Any, w: dict, options: argparse.Namespace, log: Any
) -> Material:
    """Own texts and corpus rows, with features, in random order."""
    parts = []
    for temperature in _TEMPERATURES:
        rows, _ = write_texts(
            plain, w, options.data / "prompts.npz", temperature, False, _TEXT_TOKENS
        )
        rows = _multiple(rows, SHORT_TOKENS // _TEXT_TOKENS).reshape(-1, SHORT_TOKENS)
        parts.append(_multiple(rows, _ROWS))
    log("written", rows=sum(len(p) for p in parts))
    corpus = load_plan(options.data, "short", plain.config.pad_token_id, options.device)
    pick = torch.randperm(len(corpus))[:_CORPUS_ROWS].to(corpus.device)
    parts.append(corpus[pick].to(torch.int64))
    seen = observe(trainer.network, trainer.prepared(), torch.cat(parts), _ROWS)
    log("observed", rows=len(seen.tokens_RT))
    return seen


def _own_rounds(trainer: Any, plain: Any, w: dict, options: Any, held_out: bool) -> tuple:
    """Greedy texts with their features, one a row, and the prompt lengths."""
    rows, length = write_texts(plain, w, options.data / "prompts.npz", 0.0, held_out, _TEXT_TOKENS)
    rows, length = rows[:512], length[:512]
    wide = _multiple(rows, 64)
    packed = wide.reshape(-1, SHORT_TOKENS)
    seen = observe(trainer.network, trainer.prepared(), packed, _ROWS)
    shape = (len(wide), _TEXT_TOKENS, -1)
    apart = Material(
        tokens_RT=wide,
        features_RTX=seen.features_RTX.reshape(shape),
        hidden_RTC=seen.hidden_RTC.reshape(shape),
    )
    return apart, length[: len(wide)]


def _judge(network: Any, w: dict, own: tuple, fit: tuple, log: Any) -> np.ndarray:
    """Log acceptance and calibration; returns the temperatures."""
    fitted = fit_temperature(greedy_rounds(network, w, *fit))
    rounds = greedy_rounds(network, w, *own)
    log(
        "drafts",
        rounds=len(rounds.accepted_N),
        accepted=float(rounds.accepted_N.mean()),
        histogram=np.bincount(rounds.accepted_N, minlength=6).tolist(),
        error_raw=calibration_error(rounds, np.ones(5)),
        error=calibration_error(rounds, fitted),
        temperature=[round(float(t), 3) for t in fitted],
    )
    return fitted


def train(
    trainer: BackboneTrainer, stacked: dict, options: argparse.Namespace, log: Any
) -> dict[str, torch.Tensor]:
    """Train the drafter on the frozen backbone.

    Args:
        trainer: with the final backbone weights.
        stacked: starting values; those of the drafter are used.
        options: of the run.
        log: receives losses and judgements.

    Returns:
        Draft tensors and ``confidence_temperature``.
    """
    device, start = options.device, time.monotonic()
    plain = dataclasses.replace(trainer.network, stages=Stages(), index_training=False)
    with torch.no_grad():
        w = prepare(trainer.params, plain.precision)
    material = _material(trainer, plain, w, options, log)
    own = _own_rounds(trainer, plain, w, options, True)
    fit = _own_rounds(trainer, plain, w, options, False)
    params = {k: v.to(device) for k, v in stacked.items() if not is_backbone(k)}
    frozen = {k: w[k] for k in ("embed", "head")}
    draft = DraftTrainer(plain, params, frozen, _RATES, _GREEDY_SHARE, _ANCHORS)
    order = batches(len(material.tokens_RT), _ROWS, torch.Generator().manual_seed(3))
    step = 0
    while (done := (time.monotonic() - start) / options.draft_seconds) < 1.0:
        draft.optimiser.set_rate(min(step / 100, 1.0) * min(1.0, 2.0 * (1.02 - done)))
        draft.step(material.select(next(order).to(device)))
        step += 1
        if step % 500 == 0:
            log("draft", step=step, done=done, **draft.read_meter())
    with torch.no_grad():
        for v in params.values():
            if v.ndim > 1:
                v.copy_(v.bfloat16())
        fitted = _judge(plain, draft.prepared(), own, fit, log)
    log("draft_end", steps=step)
    _show(own, log)
    return {**params, "confidence_temperature": torch.tensor(fitted, dtype=torch.float32)}


def _show(own: tuple, log: Any) -> None:
    """Token ids of a few held-out continuations, to be read after the run."""
    material, length = own
    for r in (0, 1, 2, -3, -2, -1):
        ids = material.tokens_RT[r].tolist()
        log(
            "sample",
            prompt=int(length[r]),
            ids=ids[: max(i for i, t in enumerate(ids) if t != 4079) + 1],
        )
