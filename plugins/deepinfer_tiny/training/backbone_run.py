"""How does the backbone's part of a run go: which batch, when judged, which weights win?

The number of steps follows from the time and the measured speed. Every twelfth step takes long
rows. Held-out text is scored by source at fixed fractions, and the best weights are kept.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .backbone_training import BackboneTrainer, Schedule
from .evaluate import bits_per_byte
from .rows import load_plan, load_valid

__all__ = ["ROWS", "BackboneRun"]

ROWS, _LONG_ROWS = 16, 4  # 32,768 tokens a step either way
_MARKS = (0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0)
# Goals in bits per byte: the best weights have the least mean ratio to them.
_GOALS = {"tinystories": 0.80, "story_chat": 0.40, "books+tales": 1.42}
_FIRST_LONG_STEP = 30
# Speed is measured between these steps: behind all compiling, over four long steps.
_MEASURE_FROM, _MEASURE_TO = 40, 88
_RESERVE_S = 20.0  # for the judgements


class BackboneRun:
    """One piece of a run; `train` returns the best weights."""

    def __init__(
        self, trainer: BackboneTrainer, options: argparse.Namespace, log: Callable[..., None]
    ) -> None:
        """Load the rows and, if there is a state file, the state of the piece before."""
        pad, device = trainer.network.config.pad_token_id, options.device
        self.trainer, self.options, self.log = trainer, options, log
        self.short = load_plan(options.data, "short", pad, device)
        self.long = load_plan(options.data, "long", pad, device)
        self.valid = load_valid(options.data, pad, ROWS, device)
        # A run from trained weights keeps its trained selection from the first step on.
        started = options.start is not None
        self.schedule = Schedule(dense_until=0.0, constant_until=0.2) if started else Schedule()
        progress: dict[str, Any] = {"step": 0, "total": options.steps, "best": float("inf")}
        if options.state and options.state.exists():
            progress = trainer.load(options.state)
        self.step, self.total, self.best = progress["step"], progress["total"], progress["best"]
        present = {k: v.detach().clone() for k, v in trainer.params.items()}
        self.kept: dict[str, torch.Tensor] = progress.get("kept", present)
        self._start = self._measured_from = time.monotonic()

    def train(self) -> dict[str, torch.Tensor]:
        """Train until the plan or the time ends; weights are fp32 on the device."""
        marks = [m for m in _MARKS if not self.total or m * self.total > self.step]
        while self._goes_on():
            done = self.step / (self.total or 5000)
            self.trainer.set_fraction(self.schedule, done)
            self.trainer.step(self._batch())
            self.step += 1
            if not self.total:
                self._measure()
            if self.step % 200 == 0:
                self.log("train", step=self.step, **self.trainer.read_meter())
            if self.total and marks and self.step >= marks[0] * self.total:
                marks.pop(0)
                self._judge()
        if self.options.state:
            progress = {"step": self.step, "total": self.total, "best": self.best}
            self.trainer.save(self.options.state, {**progress, "kept": self.kept})
        seconds = time.monotonic() - self._start
        self.log("backbone", steps=self.step, seconds=seconds, best=self.best)
        return self.kept

    def score(self) -> dict[str, float]:
        """Bits per byte of the present weights."""
        trainer = self.trainer
        return bits_per_byte(trainer.network, trainer.prepared(), self.valid, ROWS, trainer.losses)

    def _goes_on(self) -> bool:
        in_time = time.monotonic() - self._start < self.options.seconds
        return in_time and (not self.total or self.step < self.total)

    def _batch(self) -> torch.Tensor:
        every = self.options.long_every
        is_long = every and self.step >= _FIRST_LONG_STEP and self.step % every == 0
        source, rows = (self.long, _LONG_ROWS) if is_long else (self.short, ROWS)
        n = (self.step // every if is_long else self.step) % (len(source) // rows)
        return source[n * rows : (n + 1) * rows].to(torch.int64)

    def _measure(self) -> None:
        """Decide the number of steps once the speed is known."""
        if self.step not in (_MEASURE_FROM, _MEASURE_TO):
            return
        if self.trainer.device.type == "cuda":
            torch.cuda.synchronize()
        now = time.monotonic()
        if self.step == _MEASURE_TO:
            step_s = (now - self._measured_from) / (_MEASURE_TO - _MEASURE_FROM)
            left = self.options.seconds - (now - self._start) - _RESERVE_S
            self.total = min(int(left / step_s) + self.step, self.options.max_steps)
            self.log("schedule", step_s=step_s, total=self.total)
        self._measured_from = now

    def _judge(self) -> None:
        scores: dict[str, Any] = self.score()
        self.log("valid", step=self.step, done=self.step / self.total, **scores)
        distance = float(np.mean([scores[k] / goal for k, goal in _GOALS.items()]))
        if distance < self.best:
            self.best = distance
            for k, v in self.trainer.params.items():
                self.kept[k].copy_(v.detach())
