"""How much memory does loading a checkpoint take, compared with the checkpoint itself?

Makes a random checkpoint of the given size (2 GiB by default) in a temporary folder, loads all of
it in a process of its own and compares the highest resident size with the bytes of the model. The
figure includes the interpreter and torch; their share is stated. Engram tables, two fifths of the
bytes, are mapped; the last ratio leaves them out on both sides.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from deepinfer_core.weights.random_checkpoint import make_random_checkpoint
from deepinfer_core.weights.sized_config import config_of_size
from record import figure, options, write

SHARDS = 8


def main() -> None:
    """Measure and store."""
    parser = options(__doc__)
    parser.add_argument("--size-bytes", type=int, default=2 * 2**30)
    args = parser.parse_args()
    size_bytes = args.size_bytes
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "checkpoint"
        make_random_checkpoint(folder, config_of_size(size_bytes), shards=SHARDS)
        done = subprocess.run(
            [sys.executable, "-m", "deepinfer_core.testing.peak_memory", str(folder)],
            check=True,
            capture_output=True,
            text=True,
        )
    report = json.loads(done.stdout)
    model, peak = report["model_bytes"], report["peak_bytes"]
    read = model - report["mapped_bytes"]
    loading = peak - report["baseline_bytes"]
    bound = {"name": "model bytes + 10 %", "value": round(1.1 * model)}
    write(
        "load_memory.json",
        [
            figure("peak resident size", peak, "bytes", bound=bound, ratio=peak / model),
            figure(
                *("peak resident size above the imports", loading, "bytes"),
                bound=bound,
                ratio=loading / model,
            ),
            figure(
                *("the same, of the bytes that are read, not mapped", loading, "bytes"),
                bound={"name": "bytes read + 10 %", "value": round(1.1 * read)},
                ratio=loading / read,
            ),
            figure("resident size after the imports", report["baseline_bytes"], "bytes"),
            figure("time to load", round(report["elapsed_s"], 2), "s"),
        ],
        is_record=args.record,
    )


if __name__ == "__main__":
    main()
