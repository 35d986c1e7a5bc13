"""How long does a batch take, how long until a first token, and how long between two tokens?

Percentiles are taken over all batches, all requests and all gaps of all runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepinfer_core.bench.bounds import Bounds, Work, decode_work, load_work, prompt_work
from deepinfer_core.bench.figures import Figure
from deepinfer_core.bench.percentile import PERCENTS, percentile
from deepinfer_core.bench.running import RunTimes

__all__ = ["latency_figures"]


def latency_figures(runs: Sequence[RunTimes], bounds: Bounds, *, load_name: str) -> list[Figure]:
    """Percentiles of the three durations.

    The bound of a first token is that of the shortest prompt. The bound of a gap is that of a step
    for all sequences if all answers have one length, since then they run together to the end;
    otherwise that of a step for one.

    Args:
        runs: of one source of loads, all requests of each in one batch; at least one run.
        bounds: of the model on this machine.
        load_name: what was asked, for the names.
    """
    outputs = runs[0].output_tokens
    fed_tokens = min(sum(run.fed_tokens) for run in runs)
    together = len(outputs) if len(set(outputs)) == 1 else 1
    durations: list[tuple[str, list[float], Work]] = [
        ("batch", [run.elapsed_s for run in runs], load_work(fed_tokens, outputs, len(outputs))),
        (
            "first_token",
            [value for run in runs for value in run.first_token_s],
            prompt_work(min(fed for run in runs for fed in run.fed_tokens)),
        ),
        ("inter_token", [gap for run in runs for gap in run.gaps_s], decode_work(together)),
    ]
    return [
        Figure(
            name=f"latency.{name}.p{percent}[{load_name}]",
            value=percentile(values, percent),
            unit="s",
            reference=bounds.time(work),
        )
        for name, values, work in durations
        if values  # answers of one token have no gaps
        for percent in PERCENTS
    ]
