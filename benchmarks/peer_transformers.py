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

from record import figure, write

WORKERS = Path(__file__).parent / "peer"
SAME_SHAPE_EXPERTS = 8
SAME_SIZE_EXPERTS = 13
"""Experts a layer with which the peer has 15.5 million parameters, ours has 15.4."""
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


def rate(answers: list[Answer], clock: str) -> float:
    """Median of tokens a second."""
    return statistics.median(answer["tokens"] / answer[clock] for answer in answers)


def decode_rate(answers: list[Answer], batch: int) -> float | None:
    """Median of tokens a second behind the first ones; None where those cannot be seen."""
    if any(answer["first_s"] is None for answer in answers):
        return None
    return statistics.median(
        (answer["tokens"] - batch) / (answer["total_s"] - answer["first_s"]) for answer in answers
    )


def screen(worker: Worker, args: argparse.Namespace, batch: int) -> list[tuple[float, Setting]]:
    """Tokens a second of every setting, best first; the first run of each does not count."""
    found = []
    for setting in settings_of(args):
        answers = [
            worker.ask(prompts_of(batch, args.prompt_tokens, -n), args.screen_tokens, setting)
            for n in range(1 + SCREEN_REPEATS)
        ]
        found.append((rate(answers[1:], args.clock), setting))
        print(f"  {found[-1][0]:8.1f} {setting}", file=sys.stderr, flush=True)
    return sorted(found, key=lambda item: -item[0])


def compare(args: argparse.Namespace, threads: int, batch: int) -> dict[str, object]:
    """One figure: the engine next to the peer at its best."""
    print(f"threads {threads}, batch {batch}", file=sys.stderr, flush=True)
    ours_command = [sys.executable, str(WORKERS / "deepinfer_worker.py"), str(threads), str(batch)]
    with ExitStack() as stack:
        peers = {
            experts: stack.enter_context(
                started(
                    [
                        args.peer_python,
                        str(WORKERS / "transformers_worker.py"),
                        str(threads),
                        str(experts),
                    ],
                    threads,
                )
            )
            for experts in (SAME_SIZE_EXPERTS, SAME_SHAPE_EXPERTS)
        }
        ours = stack.enter_context(started([*ours_command, *args.set], threads))
        screened = screen(peers[SAME_SIZE_EXPERTS], args, batch)
        runs: dict[int, list[Answer]] = {0: [], **{experts: [] for experts in peers}}
        for repeat in range(args.repeats + 1):
            prompts = prompts_of(batch, args.prompt_tokens, repeat)
            runs[0].append(ours.ask(prompts, args.output_tokens, {}))
            for experts, peer in peers.items():
                runs[experts].append(peer.ask(prompts, args.output_tokens, screened[0][1]))
        runs = {name: answers[1:] for name, answers in runs.items()}
        rates = {name: rate(answers, args.clock) for name, answers in runs.items()}
        best = max(peers, key=lambda experts: rates[experts])
        return figure(
            f"tokens_per_second[batch={batch},threads={threads},input={args.prompt_tokens},"
            f"output={args.output_tokens}]",
            round(rates[0], 1), "tokens/s",
            peer={
                "name": f"transformers 5.24.0, DeepseekV4ForCausalLM with {best} experts a layer",
                "value": round(rates[best], 1),
            },
            ratio=round(rates[0] / rates[best], 3),
            wanted_ratio=BOUNDS.get(batch),
            repeats=args.repeats, clock=args.clock,
            decode_tokens_per_s=rounded(decode_rate(runs[0], batch)),
            runs=per_run(runs[0], args.clock),
            ours=ours.about,
            peer_setting=screened[0][1],
            screened=[{**setting, "value": round(value, 1)} for value, setting in screened],
            peers=[
                {
                    **peer.about, "experts": experts, "value": round(rates[experts], 1),
                    "decode_tokens_per_s": rounded(decode_rate(runs[experts], batch)),
                    "runs": per_run(runs[experts], args.clock),
                }
                for experts, peer in peers.items()
            ],
        )  # fmt: skip


def per_run(answers: list[Answer], clock: str) -> list[float]:
    """Tokens a second of each repeat."""
    return [round(answer["tokens"] / answer[clock], 1) for answer in answers]


def rounded(value: float | None) -> float | None:
    """One decimal, if there is a value."""
    return None if value is None else round(value, 1)


def main() -> None:
    """Measure and store."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--peer-python", required=True, help="of an environment with requirements/peer.txt")
    add("--batches", type=int, nargs="+", default=[1, 16])
    add("--threads", type=int, nargs="+", default=[1, 2])
    add("--prompt-tokens", type=int, default=128)
    add("--output-tokens", type=int, default=128)
    add("--screen-tokens", type=int, default=32, help="output tokens while settings are tried")
    add("--repeats", type=int, default=5)
    add("--clock", choices=("total_s", "cpu_s"), default="total_s", help="cpu_s: processor time")
    add("--dtypes", nargs="+", default=["float32", "bfloat16"])
    add("--compile", nargs="+", default=["none", "connections", "connections_experts"])
    add("--set", action="append", default=[], metavar="PATH=VALUE", help="a setting of ours")
    args = parser.parse_args()
    pairs = itertools.product(args.threads, args.batches)
    write("peer_transformers.json", [compare(args, threads, batch) for threads, batch in pairs])


if __name__ == "__main__":
    main()
