"""How many tokens a second, next to transformers with a DeepSeek V4 of equal parameter count?

Both programs run on this machine in one run, each in a process and an environment of its own, in
turns: a repeat of one, a repeat of the other. Prompts, their lengths, the number of tokens, the
batch and the threads are the same; both decode greedily with their caches. The value is output
tokens a second over the whole batch, prompts included; ``decode_tokens_per_s`` leaves them out.

The peer gets the best setting that it has: combinations of number format, expert product,
torch.compile and loop are tried first, for each batch and number of threads, and the one with the
most tokens a second is measured. Not tried: other attentions and static caches, which the class
refuses; the batched expert product, which copies the weights of each row's experts and came to
less than half of the others. Two sizes are measured: as many experts a layer as make the parameter
count equal, and as many as the shipped checkpoint has (fewer parameters in all, the same for a
token). The ratio is against the faster of the two.

What differs, because the class has no such thing. It is V4, not V4.1: each layer keeps keys of its
own, two of three sparse layers share none; three layers compress by 4 with an index over them and
three by 128 without, where V4.1 has ratios 2 and 1; no Engram tables, no drafter (0.8 and 3.2
million parameters of ours, of which plain decoding uses no row of the drafter). Its weights are
random and kept in the number format it computes in; ours are FP8 and FP4 with rounded activations
and quantised caches. It draws the likeliest token and nothing else; we also book blocks, test for
ends and make text.
"""

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from record import figure, options, write

WORKERS = Path(__file__).parent / "peer"
OURS = 0
PEER_EXPERTS = (13, 8)
"""Experts a layer: with 13 the peer has 15.5 million parameters, ours has 15.4; 8 is our number."""
VOCABULARY = 4000
BOUNDS = {1: 2.0, 16: 5.0}
"""How many times faster we want to be, by batch size."""
SCREEN_REPEATS = 2

Answer = dict[str, Any]
Setting = dict[str, str]


class Worker:
    """A process that answers one line for each line."""

    def __init__(self, command: list[str], threads: int) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"},
        )
        self.about = self._answer()

    def ask(self, prompts: list[list[int]], output_tokens: int, setting: Setting) -> Answer:
        """Run one batch."""
        asked = {"prompts": prompts, "output_tokens": output_tokens, "setting": setting}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        wanted = len(prompts) * output_tokens
        if answer["tokens"] != wanted:
            raise SystemExit(f"{answer['tokens']} tokens came, asked for {wanted}")
        return answer

    def close(self) -> None:
        """Let it end."""
        self._process.communicate(timeout=60)

    def _answer(self) -> Answer:
        assert self._process.stdout is not None
        # Libraries may print lines of their own.
        for line in self._process.stdout:
            if line.startswith("{"):
                found: Answer = json.loads(line)
                return found
        raise SystemExit(f"a worker ended with status {self._process.wait()}")


@contextmanager
def started(command: list[str], threads: int) -> Iterator[Worker]:
    """A worker that ends with the block."""
    worker = Worker(command, threads)
    try:
        yield worker
    finally:
        worker.close()


def settings_of(args: argparse.Namespace) -> list[Setting]:
    """Everything that can be set; the loop is tried only in the plainest form."""
    forms = itertools.product(args.dtypes, ("eager", "grouped_mm"), args.compile)
    loops = [
        {"dtype": dtype, "experts": experts, "compile": compiled, "loop": "direct"}
        for dtype, experts, compiled in forms
    ]
    return [*loops, {**loops[0], "loop": "generate"}]


def prompts_of(batch: int, tokens: int, repeat: int) -> list[list[int]]:
    """Random prompts, new in every repeat."""
    source = random.Random(f"{batch}:{repeat}")
    return [[source.randrange(VOCABULARY) for _ in range(tokens)] for _ in range(batch)]


def rates_of(answers: list[Answer], clock: str) -> list[float]:
    """Tokens a second of each answer."""
    return [answer["tokens"] / answer[clock][1] for answer in answers]


def decode_rate(answers: list[Answer], batch: int, clock: str) -> float | None:
    """Median of tokens a second behind the first ones; None where those cannot be seen."""
    spans = [answer[clock] for answer in answers]
    if any(first is None for first, _ in spans):
        return None
    drawn = answers[0]["tokens"] - batch
    rates = [drawn / (total - first) for first, total in spans]
    return float(round(statistics.median(rates), 1))


def screen(worker: Worker, args: argparse.Namespace, batch: int) -> list[tuple[float, Setting]]:
    """Tokens a second of every setting, best first; the first run of each does not count."""
    found = []
    for setting in settings_of(args):
        answers = [
            worker.ask(prompts_of(batch, args.prompt_tokens, -n), args.screen_tokens, setting)
            for n in range(1 + SCREEN_REPEATS)
        ]
        found.append((statistics.median(rates_of(answers[1:], args.clock)), setting))
        print(f"  {found[-1][0]:8.1f} {setting}", file=sys.stderr, flush=True)
    return sorted(found, key=lambda item: -item[0])


def compare(args: argparse.Namespace, threads: int, batch: int) -> dict[str, object]:
    """One figure: the engine next to the peer at its best."""
    print(f"threads {threads}, batch {batch}", file=sys.stderr, flush=True)
    ours = [sys.executable, str(WORKERS / "deepinfer_worker.py"), str(threads), str(batch)]
    peer = [args.peer_python, str(WORKERS / "transformers_worker.py"), str(threads)]
    with ExitStack() as stack:
        workers = {OURS: stack.enter_context(started([*ours, *args.set], threads))}
        for experts in PEER_EXPERTS:
            workers[experts] = stack.enter_context(started([*peer, str(experts)], threads))
        screened = screen(workers[PEER_EXPERTS[0]], args, batch)
        settings = {name: {} if name == OURS else screened[0][1] for name in workers}
        runs: dict[int, list[Answer]] = {name: [] for name in workers}
        for repeat in range(args.repeats + 1):
            prompts = prompts_of(batch, args.prompt_tokens, repeat)
            for name, worker in workers.items():
                runs[name].append(worker.ask(prompts, args.output_tokens, settings[name]))
    sides = {
        name: side_of(worker, runs[name][1:], batch, args.clock) for name, worker in workers.items()
    }
    load = f"batch={batch},threads={threads},input={args.prompt_tokens},output={args.output_tokens}"
    found = described(load, sides)
    found["wanted_ratio"] = BOUNDS.get(batch)
    found["clock"] = args.clock
    found["peer_setting"] = screened[0][1]
    found["screened"] = [{**setting, "value": round(value, 1)} for value, setting in screened]
    return found


def side_of(worker: Worker, answers: list[Answer], batch: int, clock: str) -> Answer:
    """What one program did."""
    rates = rates_of(answers, clock)
    return {
        **worker.about,
        "value": round(statistics.median(rates), 1),
        "decode_tokens_per_s": decode_rate(answers, batch, clock),
        "runs": [round(rate, 1) for rate in rates],
    }


def described(load: str, sides: dict[int, Answer]) -> dict[str, object]:
    """The figure of our side next to the faster peer."""
    ours = sides[OURS]
    best = max(PEER_EXPERTS, key=lambda experts: sides[experts]["value"])
    name = f"transformers 5.24.0, DeepseekV4ForCausalLM with {best} experts a layer"
    return figure(
        f"tokens_per_second[{load}]",
        ours["value"],
        "tokens/s",
        peer={"name": name, "value": sides[best]["value"]},
        ratio=round(ours["value"] / sides[best]["value"], 3),
        ours=ours,
        peers={f"{experts} experts": sides[experts] for experts in PEER_EXPERTS},
    )


def main() -> None:
    """Measure and store."""
    parser = options(__doc__)
    add = parser.add_argument
    add("--peer-python", required=True, help="of an environment with requirements/peer.txt")
    add("--batches", type=int, nargs="+", default=[1, 16])
    add("--threads", type=int, nargs="+", default=[1, 2])
    add("--prompt-tokens", type=int, default=128)
    add("--output-tokens", type=int, default=128)
    add("--screen-tokens", type=int, default=32, help="output tokens while settings are tried")
    add("--repeats", type=int, default=5)
    add(
        "--clock", choices=("wall", "cpu"), default="wall", help="cpu: for a machine that is shared"
    )
    add("--dtypes", nargs="+", default=["float32", "bfloat16"])
    add("--compile", nargs="+", default=["none", "connections", "connections_experts"])
    add("--set", action="append", default=[], metavar="PATH=VALUE", help="a setting of ours")
    args = parser.parse_args()
    pairs = itertools.product(args.threads, args.batches)
    figures = [compare(args, threads, batch) for threads, batch in pairs]
    write("peer_transformers.json", figures, is_record=args.record)


if __name__ == "__main__":
    main()
