"""How many drafts would pay on an NVIDIA H200? A simulation: the planner on a curve of that GPU.

Nothing here runs on a GPU. What is measured: the times of decode steps of 12 and 16 layers at true
shapes (``results/h200_layers.json``), and drafts of the shipped checkpoint with their confidences
and what became of them, along its own greedy text behind held-out openings of stories, chat and
code by turns. What is not: the file's figures for all 40 layers are extrapolated there; sizes
between its rows are on straight lines between them, and padded to the sizes that are recorded; a
draft round is taken to cost what its three layers cost in a step of as many rows, 3/40 of it;
engine, sampler and head cost nothing. A larger model's drafts survive more or less often than those
of a small one.

So many sequences decode: a step verifies some of the drafts of each, and emits those of them that
are right and one token more. *Plain* drafts nothing, *fixed* verifies all five, *planned* is the
planner of ``dspark.block``, which knows nothing but confidences and the times of its own steps.
What is lost in steps that verify nothing, its trials, is the part of the time that the others would
not have needed for the same tokens.
"""

import json
import re
from collections.abc import Sequence
from itertools import cycle, islice, pairwise
from pathlib import Path

from deepinfer_core.engine.draft_rounds import draft_rounds
from deepinfer_core.engine.rungs import row_rungs
from deepinfer_core.interfaces.draft_planner import DraftOutcome, DraftView, StepTimes
from deepinfer_core.schedule.speculation import survival
from deepinfer_core.schedule.speculation_costs import CostCurve
from deepinfer_dspark.measuring import MeasuredCosts, round_sizes
from deepinfer_dspark.planner import DsparkPlanner
from draft_acceptance import openings
from record import figure, options, write

from deepinfer_core import LLM

LAYERS = Path(__file__).parent / "results" / "h200_layers.json"
NAME = re.compile(
    r"layers\.decode\.extrapolated\[sequences=(\d+),context=(\d+),rows=(\d+),layers=40,"
)
SEQUENCES = (16, 32, 48, 60, 72, 96, 256, 512)
DRAFTS = 5
ROUND_SHARE = 3 / 40
WARMING_STEPS = 100
STEPS = 400
Blocks = Sequence[tuple[tuple[float, ...], int]]
"""Confidences of a block, and how many of its drafts in front are right."""


def measured_ms(context: int) -> dict[int, float]:
    """Milliseconds of a decode step of 40 layers by rows, behind so many tokens each."""
    found = {}
    for one in json.loads(LAYERS.read_text(encoding="utf-8")):
        match = NAME.match(one["name"])
        if match and int(match[2]) == context:
            found[int(match[1]) * int(match[3])] = float(one["value"])
    return dict(sorted(found.items()))


def between(points_ms: dict[int, float], rows: int) -> float:
    """On the straight line between the nearest numbers of rows; the last one goes on."""
    pairs = list(pairwise(points_ms.items()))
    (low, low_ms), (high, high_ms) = next((p for p in pairs if rows <= p[1][0]), pairs[-1])
    return low_ms + (high_ms - low_ms) * (rows - low) / (high - low)


def costs(points_ms: dict[int, float], sequences: int) -> MeasuredCosts:
    """Steps at the sizes that are recorded, and draft rounds."""
    rows, rounds = row_rungs(sequences * (DRAFTS + 1)), round_sizes(sequences)
    return MeasuredCosts(
        steps=CostCurve(
            rows=tuple(rows), milliseconds=tuple(between(points_ms, size) for size in rows)
        ),
        rounds=CostCurve(
            rows=rounds,
            milliseconds=tuple(ROUND_SHARE * between(points_ms, DRAFTS * size) for size in rounds),
        ),
    )


def recorded(rounds: int) -> list[Blocks]:
    """Blocks behind each opening, one kind of text after the other."""
    texts: dict[str, list[Blocks]] = {}
    with LLM() as llm:
        for kind, ids in openings(llm):
            whole = [one for one in draft_rounds(llm, ids, rounds) if one.is_whole]
            if whole:
                blocks = [(tuple(one.confidences), one.accepted) for one in whole]
                texts.setdefault(kind, []).append(blocks)
    most = max(map(len, texts.values()))
    return [each[number % len(each)] for number in range(most) for each in texts.values()]


def speed(
    texts: Sequence[Blocks], measured: MeasuredCosts, planner: DsparkPlanner | None, verified: int
) -> dict[str, float]:
    """Decode with a planner, or with so many drafts verified of each sequence, and sum up."""
    streams = [cycle(blocks) for blocks in texts]
    count = len(texts)
    totals = dict.fromkeys(("ms", "tokens", "verified", "rounds", "bare_ms", "bare"), 0.0)
    held: list[tuple[tuple[float, ...], int] | None] = [None] * count
    older: list[tuple[float, ...] | None] = [None] * count
    for step in range(WARMING_STEPS + STEPS):
        if step == WARMING_STEPS:
            totals = dict.fromkeys(totals, 0.0)
        rows: Sequence[int] = [1 + verified * (block is not None) for block in held]
        drafts_next = verified > 0
        if planner is not None:
            views = [
                DraftView(DRAFTS, survival(block[0]), old) if block else DraftView(0)
                for block, old in zip(held, older, strict=True)
            ]
            rows = planner.rows(views, other_rows=0)
            drafts_next = planner.drafts_next()
        older = [survival(block[0]) if block else None for block in held]
        kept = [min(n - 1, block[1]) if block else 0 for n, block in zip(rows, held, strict=True)]
        step_ms = measured.steps.milliseconds[measured.steps.place(sum(rows))]
        round_ms = measured.rounds.milliseconds[measured.rounds.place(count)] * drafts_next
        totals["ms"] += step_ms + round_ms
        totals["tokens"] += count + sum(kept)
        totals["verified"] += sum(rows) - count
        totals["rounds"] += drafts_next
        if sum(rows) == count:
            totals["bare_ms"] += step_ms + round_ms
            totals["bare"] += count
        if planner is not None:
            planner.learn(
                [
                    DraftOutcome(n - 1, k, block[0])
                    for n, k, block in zip(rows, kept, held, strict=True)
                    if block and n > 1
                ]
            )
            whole_s, round_s = (step_ms + round_ms) / 1e3, round_ms / 1e3
            tokens = count + sum(kept)
            times = StepTimes(count, sum(rows), whole_s, drafts_next, round_s or None, tokens)
            planner.took(times)
        held = [next(stream) if drafts_next else None for stream in streams]
    each = STEPS * count
    usual = (totals["ms"] - totals["bare_ms"]) / max(totals["tokens"] - totals["bare"], 1.0)
    return {
        "tokens_s": round(1e3 * totals["tokens"] / totals["ms"], 1),
        "step_ms": round(totals["ms"] / STEPS, 2),
        "verified": round(totals["verified"] / each, 3),
        "accepted": round(totals["tokens"] / each - 1, 3),
        "steps_with_a_round": round(totals["rounds"] / STEPS, 3),
        "lost_in_steps_that_verify_nothing": round(
            (totals["bare_ms"] - usual * totals["bare"]) / totals["ms"], 4
        ),
    }


def main() -> None:
    """Simulate every number of sequences, and store."""
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=12, help="behind each opening")
    parser.add_argument("--context", type=int, default=8192, choices=(1024, 8192, 131072))
    args = parser.parse_args()
    points_ms, texts = measured_ms(args.context), recorded(args.rounds)
    figures = []
    for count in SEQUENCES:
        measured, mine = costs(points_ms, count), list(islice(cycle(texts), count))
        plain = speed(mine, measured, None, 0)
        fixed = speed(mine, measured, None, DRAFTS)
        planned = speed(mine, measured, DsparkPlanner(measured, DRAFTS), 0)
        figures.append(
            figure(
                f"simulated.planned[gpu=NVIDIA H200,layers=40,context={args.context},"
                f"sequences={count}]",
                planned["tokens_s"], "tokens/s",
                against_plain=round(planned["tokens_s"] / plain["tokens_s"], 3),
                against_fixed=round(planned["tokens_s"] / fixed["tokens_s"], 3),
                planned=planned, fixed=fixed, plain=plain,
            )
        )  # fmt: skip
    figures.append(
        figure("simulated.curve[gpu=NVIDIA H200,layers=40]", len(points_ms), "sizes", ms=points_ms)
    )
    write("planned_on_h200.json", figures, is_record=args.record)


if __name__ == "__main__":
    main()
