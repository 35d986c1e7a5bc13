"""Program: the shipped checkpoint in this engine, one greedy batch for each line of stdin.

The same lines and answers as ``transformers_worker``; ``setting`` holds settings by their paths.
Arguments: the number of threads, the batch size. The engine keeps its defaults otherwise: text is
made, every token is checked for an end, blocks are booked.
"""

import json
import sys
import time
from typing import Any

import torch
from deepinfer_core.bench.model_cost import model_cost
from deepinfer_core.config import load_settings

from deepinfer_core import LLM, SamplingParams


def now() -> dict[str, float]:
    """Both clocks."""
    return {"wall": time.perf_counter(), "cpu": time.process_time()}


def decode(llm: LLM, prompts: list[list[int]], count: int) -> dict[str, Any]:
    """Draw greedily and past the end of the sequence."""
    params = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
    began = now()
    seen: set[int] = set()
    first = began
    tokens = 0
    for delta in llm.stream(None, params, prompts):
        if delta.completion is not None and delta.completion.error is not None:
            raise delta.completion.error
        if delta.token_ids and delta.index not in seen:
            seen.add(delta.index)
            first = now()
        tokens += len(delta.token_ids)
    ended = now()
    spans = {clock: [first[clock] - start, ended[clock] - start] for clock, start in began.items()}
    return {"tokens": tokens, **spans}


def main() -> None:
    """Answer until stdin ends."""
    threads, batch = int(sys.argv[1]), int(sys.argv[2])
    overrides = [f"threads={threads}", f"engine.max_num_seqs={batch}", *sys.argv[3:]]
    with LLM.from_settings(load_settings(None, overrides)) as llm:
        parameters = model_cost(llm.loaded.config).parameters
        picked = llm.loaded.resolution.report.picked()
        about = {"parameters": parameters, "torch": torch.__version__, "components": picked}
        print(json.dumps(about), flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            print(json.dumps(decode(llm, asked["prompts"], asked["output_tokens"])), flush=True)


if __name__ == "__main__":
    main()
