"""How is the checkpoint trained from nothing, in pieces of under ten minutes?

    python -m training.run DATA OUT [--seconds 330] [--draft-seconds 120] [...]

DATA is the folder of `corpus`. The backbone trains until its share of the time is used, then the
drafter on the frozen backbone. OUT receives ``log.jsonl`` and the weights in two halves;
``--state FILE`` keeps everything needed to go on in another piece.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from . import draft_run, ngram, parameters, reading
from .backbone_run import BackboneRun
from .backbone_training import BackboneTrainer, Settings
from .config import TINY
from .halves import is_wide, save_halves
from .network import Network
from .precision import TRAINING
from .stages import Stages

__all__ = ["Log", "main"]

# Each stage meets two shapes, with and without gradients, for both compression ratios.
_COMPILED_FORMS = 64


class Log:
    """One JSON object a line, on disk and on standard output."""

    def __init__(self, file: Path) -> None:
        """Start the clock."""
        self._file, self._start = file, time.monotonic()

    def __call__(self, kind: str, **values: Any) -> None:
        """Write one entry with the elapsed seconds."""
        entry: dict[str, Any] = {
            "kind": kind,
            "elapsed_s": round(time.monotonic() - self._start, 1),
        }
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
    parser.add_argument("--residual-dropout", type=float, default=0.2)
    parser.add_argument("--engram-dropout", type=float, default=0.5)
    parser.add_argument("--decay", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--long-every", type=int, default=12)
    parser.add_argument("--state", type=Path)
    parser.add_argument("--start", type=Path, help="checkpoint folder to start from")
    parser.add_argument("--teachers", type=Path, nargs="*", default=[], help="checkpoint folders")
    parser.add_argument("--peak", type=float, default=1.0, help="multiplies all learning rates")
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


def build_network(device: str, data: Path) -> Network:
    """The training network with the hash tables of the corpus' tokenizer."""
    keys = json.loads((data / "keys.json").read_text())
    return Network(
        config=TINY,
        tables=ngram.build(TINY, keys, device),
        precision=TRAINING,
        stages=Stages() if device == "cpu" else Stages.compiled(),
        index_training=True,
    )


def build_trainer(options: argparse.Namespace, stacked: dict[str, torch.Tensor]) -> BackboneTrainer:
    """Trainer with the settings of the command line."""
    settings = Settings(
        residual_dropout=options.residual_dropout,
        engram_dropout=options.engram_dropout,
        decay=options.decay,
        muon_rate=0.02 * options.peak,
        adam_rate=4e-3 * options.peak,
    )
    teachers = tuple(reading.read(TINY, folder) for folder in options.teachers)
    return BackboneTrainer(build_network(options.device, options.data), stacked, settings, teachers)


def main() -> None:
    """Train both parts."""
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.recompile_limit = _COMPILED_FORMS
    log = Log(options.out / "log.jsonl")
    log("options", **{k: str(v) for k, v in vars(options).items()})
    started = options.start is not None
    stacked = reading.read(TINY, options.start) if started else None
    stacked = stacked or parameters.initialise(TINY, options.seed)
    trainer = build_trainer(options, stacked)
    run = BackboneRun(trainer, options, log)
    best = run.train()
    with torch.no_grad():
        for k, v in best.items():
            trainer.params[k].copy_(v if is_wide(k) else v.bfloat16())
    trainer.release_graphs()
    save_halves(options.out, {**stacked, **trainer.params})
    log("final", **run.score())
    if options.draft_seconds > 0:
        draft = draft_run.train(trainer, stacked, options, log)
        save_halves(options.out, {**stacked, **trainer.params, **draft})


if __name__ == "__main__":
    main()
