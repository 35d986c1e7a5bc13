"""How is the checkpoint trained from nothing, in pieces of under ten minutes?

    python -m training.run DATA OUT [--seconds 330] [--draft-seconds 120] [...]

DATA is the folder of `corpus`. The backbone trains until its share of the time is used, then the
drafter on the frozen backbone. OUT receives ``log.jsonl`` and the weights in two halves (bf16,
stacked names); ``--state FILE`` keeps everything needed to go on in another piece.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from . import draft_run, ngram, parameters, reading
from .backbone_training import BackboneTrainer, Schedule, Settings
from .config import TINY
from .evaluate import bits_per_byte
from .network import Network
from .precision import TRAINING
from .rows import load_plan, load_valid
from .stages import Stages

__all__ = ["Log", "main"]

_ROWS, _LONG_ROWS = 16, 4
_JUDGED = {"tinystories": 0.80, "story_chat": 0.40, "books+tales": 1.42}


class Log:
    """One JSON object a line, on disk and on standard output."""

    def __init__(self, file: Path) -> None:
        """Start the clock."""
        self._file, self._start = file, time.monotonic()

    def __call__(self, kind: str, **values: Any) -> None:
        """Write one entry with the elapsed seconds."""
        entry = {"kind": kind, "elapsed_s": round(time.monotonic() - self._start, 1)}
        for k, v in values.items():
            entry[k] = float(f"{v:.4g}") if isinstance(v, float) else v
        line = json.dumps(entry, ensure_ascii=False)
        print(line, flush=True)
        with self._file.open("a", encoding="utf-8") as f:
            f.write(line + "\n")


def parse() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=330.0)
    parser.add_argument("--draft-seconds", type=float, default=120.0)
    parser.add_argument("--steps", type=int, default=0, help="0: as many as the time allows")
    parser.add_argument("--max-steps", type=int, default=10**9)
    parser.add_argument("--residual-dropout", type=float, default=0.1)
    parser.add_argument("--engram-dropout", type=float, default=0.3)
    parser.add_argument("--decay", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--long-every", type=int, default=12)
    parser.add_argument("--state", type=Path)
    parser.add_argument("--start", type=Path, help="checkpoint folder to start from")
    parser.add_argument("--teachers", type=Path, nargs="*", default=[], help="checkpoint folders")
    parser.add_argument("--peak", type=float, default=1.0, help="multiplies all learning rates")
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


def build_network(device: str, compiled: bool, data: Path) -> Network:
    """The training network with the hash tables of the corpus' tokenizer."""
    keys = json.loads((data / "keys.json").read_text())
    stages = Stages.compiled() if compiled else Stages()
    return Network(
        config=TINY, tables=ngram.build(TINY, keys, device), precision=TRAINING, stages=stages,
        index_training=True,
    )  # fmt: skip


def save_halves(out: Path, stacked: dict[str, torch.Tensor]) -> None:
    """Write the weights as two bf16 files of less than 16 MiB each."""
    halves: list[dict[str, torch.Tensor]] = [{}, {}]
    filled = [0, 0]
    for name, value in sorted(stacked.items(), key=lambda item: -item[1].numel()):
        wide = "gate_bias" in name or "hc_" in name or name.endswith(("sink", "temperature"))
        half = int(filled[1] < filled[0])
        stored = value.detach().cpu().to(torch.float32 if wide else torch.bfloat16)
        halves[half][name] = stored
        filled[half] += stored.numel() * stored.element_size()
    for i, half in enumerate(halves):
        torch.save(half, out / f"weights{i}.pt")


def load_halves(folder: Path) -> dict[str, torch.Tensor]:
    """Inverse of `save_halves`, fp32."""
    found: dict[str, torch.Tensor] = {}
    for i in range(2):
        found |= torch.load(folder / f"weights{i}.pt", map_location="cpu", weights_only=True)
    return {k: v.float() for k, v in found.items()}


def _distance(scores: dict[str, float]) -> float:
    """Mean ratio to the goals: what the best weights are chosen by."""
    return float(np.mean([scores[k] / goal for k, goal in _JUDGED.items()]))


def train_backbone(
    trainer: BackboneTrainer, options: argparse.Namespace, log: Log
) -> dict[str, torch.Tensor]:
    """Run the schedule; returns the best weights seen (fp32, on the device)."""
    config, device = trainer.network.config, options.device
    short = load_plan(options.data, "short", config.pad_token_id, device)
    long = load_plan(options.data, "long", config.pad_token_id, device)
    valid = load_valid(options.data, config.pad_token_id, _ROWS, device)
    progress = {"step": 0, "total": options.steps, "best": float("inf")}
    if options.state and options.state.exists():
        progress = trainer.load(options.state)
    best = {k: v.detach().clone() for k, v in trainer.params.items()}
    # A run from trained weights keeps its trained selection from the first step on.
    schedule = Schedule(dense_until=0.0, constant_until=0.2) if options.start else Schedule()
    start, step = time.monotonic(), progress["step"]
    total = progress["total"] or 10**9
    marks = [0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0]
    marks = [m for m in marks if m * total > step]
    first_timed = None
    while step < total and time.monotonic() - start < options.seconds:
        trainer.set_fraction(schedule, step / total if progress["total"] else step / 5000)
        is_long = options.long_every and step >= 30 and step % options.long_every == 0
        source, rows = (long, _LONG_ROWS) if is_long else (short, _ROWS)
        count = len(source) // rows
        n = (step // options.long_every if is_long else step) % count
        trainer.step(source[n * rows : (n + 1) * rows].to(torch.int64))
        step += 1
        if not progress["total"] and step in (40, 88):
            torch.cuda.synchronize()
            now = time.monotonic()
            if step == 88:
                rate = (now - first_timed) / 48
                left = options.seconds - (now - start) - 20
                total = min(int(left / rate) + step, options.max_steps)
                progress["total"] = total
                log("schedule", step_s=rate, total=total)
            first_timed = now
        if step % 200 == 0:
            log("train", step=step, **trainer.read_meter())
        if progress["total"] and marks and step >= marks[0] * total:
            marks.pop(0)
            scores = _score(trainer, valid)
            log("valid", step=step, done=step / total, **scores)
            if _distance(scores) < progress["best"]:
                progress["best"] = _distance(scores)
                for k, v in trainer.params.items():
                    best[k].copy_(v.detach())
    progress["step"] = step
    if options.state:
        trainer.save(options.state, progress)
    log("backbone", steps=step, seconds=time.monotonic() - start, best=progress["best"])
    return best


def _score(trainer: BackboneTrainer, valid: Any) -> dict[str, float]:
    w = trainer.prepared()
    return bits_per_byte(trainer.network, w, valid, _ROWS, trainer.losses)


def main() -> None:
    """Train both parts."""
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.recompile_limit = 64
    log = Log(options.out / "log.jsonl")
    log("options", **{k: str(v) for k, v in vars(options).items()})
    network = build_network(options.device, options.device != "cpu", options.data)
    stacked = parameters.initialise(TINY, options.seed)
    if options.start:
        stacked = reading.read(TINY, options.start)
    settings = Settings(
        residual_dropout=options.residual_dropout,
        engram_dropout=options.engram_dropout,
        decay=options.decay,
        muon_rate=0.02 * options.peak,
        adam_rate=4e-3 * options.peak,
    )
    teachers = tuple(reading.read(TINY, folder) for folder in options.teachers)
    trainer = BackboneTrainer(network, stacked, settings, teachers)
    if options.seconds > 0:
        best = train_backbone(trainer, options, log)
        with torch.no_grad():
            for k, v in best.items():
                wide = "gate_bias" in k or "hc_" in k or k.endswith("sink")
                trainer.params[k].copy_(v if wide else v.bfloat16())
        trainer.release_graphs()
        save_halves(options.out, {**stacked, **trainer.params})
    valid = load_valid(options.data, TINY.pad_token_id, _ROWS, options.device)
    log("final", **_score(trainer, valid))
    if options.draft_seconds > 0:
        draft = draft_run.train(trainer, stacked, options, log)
        save_halves(options.out, {**stacked, **trainer.params, **draft})


if __name__ == "__main__":
    main()
