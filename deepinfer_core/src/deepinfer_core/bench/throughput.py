"""How many requests and tokens a second does the engine finish?

All requests are asked for at once. Each figure is the median over the runs; the bound is the same
amount divided by the least time that the load can take.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from deepinfer_core.bench.bounds import Bounds, load_work
from deepinfer_core.bench.figures import Figure
from deepinfer_core.bench.running import RunTimes

__all__ = ["throughput_figures"]

_AMOUNTS: tuple[tuple[str, str, Callable[[RunTimes], int]], ...] = (
    ("requests", "requests/s", lambda run: len(run.output_tokens)),
    ("prompt_tokens", "tokens/s", lambda run: run.prompt_tokens),
    ("output_tokens", "tokens/s", lambda run: sum(run.output_tokens)),
    ("total_tokens", "tokens/s", lambda run: run.prompt_tokens + sum(run.output_tokens)),
)


def throughput_figures(
    runs: Sequence[RunTimes], bounds: Bounds, *, load_name: str, batch_size: int
) -> list[Figure]:
    """Requests, prompt, output and total tokens a second.

    Args:
        runs: of one source of loads, at least one.
        bounds: of the model on this machine.
        load_name: what was asked, for the names.
        batch_size: requests that may run at once.
    """
    # The run with the median time: a cached prompt makes its work differ from that of others.
    elapsed_s = statistics.median_low(run.elapsed_s for run in runs)
    middle = next(run for run in runs if run.elapsed_s == elapsed_s)
    work = load_work(sum(middle.fed_tokens), middle.output_tokens, batch_size)
    return [
        Figure(
            name=f"throughput.{name}[{load_name}]",
            value=amount(middle) / elapsed_s,
            unit=unit,
            reference=bounds.rate(amount(middle), work),
        )
        for name, unit, amount in _AMOUNTS
    ]
