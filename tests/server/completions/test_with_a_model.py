"""Scores and draws of a loaded model in a process of its own, against the same model in this one."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core import LLM, SamplingParams
from deepinfer_core.config import load_settings
from deepinfer_core.interfaces.protocol import HttpCall, JsonAnswer, ServiceView
from deepinfer_core.server.completions.protocol import CompletionsProtocol
from deepinfer_core.server.engine_process import EngineProcess

SETTINGS = ("engine.max_model_len=64", "engine.max_num_seqs=4", "model.numerics.compute=float32")
PROMPTS = ([9, 40, 77, 12, 200], [9, 40, 13])


async def ask(engine: EngineProcess, body: dict[str, Any]) -> dict[str, Any]:
    """The answer of ``/v1/completions``."""
    view = ServiceView(
        engine=engine,
        model_names=("bytes",),
        options={},
        created_s=0,
        in_threads=asyncio.to_thread,
    )
    [endpoint] = [
        one
        for one in CompletionsProtocol().endpoints(view)
        if (one.method, one.path) == ("POST", "/v1/completions")
    ]
    call = HttpCall(request_id="r", key_label="", headers={}, path_values={}, body=body)
    answer = await endpoint.handle(call)
    assert isinstance(answer, JsonAnswer)
    found: dict[str, Any] = json.loads(answer.content)
    return found


def test_a_served_model_scores_and_draws_as_in_this_process(byte_checkpoint: Path) -> None:
    loaded = load_settings(overrides=[f"model.path={byte_checkpoint}", *SETTINGS], environ={})
    scored = {"prompt": [*PROMPTS], "echo": True, "logprobs": 2, "max_tokens": 0}
    drawn = {"prompt": [*PROMPTS], "n": 2, "seed": 5, "max_tokens": 6, "ignore_eos": True}

    async def served() -> list[dict[str, Any]]:
        engine = EngineProcess(loaded)
        try:
            await engine.ready()
            return [await ask(engine, body) for body in (scored, drawn)]
        finally:
            await engine.close()

    scores, draws = asyncio.run(served())
    params = SamplingParams(n=2, seed=5, max_tokens=6, ignore_eos=True, prompt_logprobs=2)
    with LLM.from_settings(loaded) as llm:
        expected = llm.generate(prompt_token_ids=PROMPTS, sampling_params=params)
    for prompt, choice, done in zip(PROMPTS, scores["choices"], expected[::2], strict=True):
        known = choice["logprobs"]["token_logprobs"]
        assert known[0] is None
        assert len(known) == len(prompt)
        # The same components compute the same rows: they promise equal bits for every batch.
        assert known[1:] == [entry.logprob for entry in done.prompt_logprobs[1:]]
    assert [choice["text"] for choice in draws["choices"]] == [done.text for done in expected]
    assert draws["usage"]["completion_tokens"] == 4 * 6
