"""A model in a process of its own scores and draws as the same model in this one."""

import asyncio
import json
from pathlib import Path
from typing import Any

from deepinfer_core.config import load_settings
from deepinfer_core.interfaces.protocol import HttpCall, JsonAnswer, ServiceView
from deepinfer_core.server.completions.protocol import CompletionsProtocol
from deepinfer_core.server.engine_process import EngineProcess

from deepinfer_core import LLM, SamplingParams

SETTINGS = ("engine.max_model_len=64", "engine.max_num_seqs=4", "model.numerics.compute=float32")
PROMPTS = ([9, 40, 77, 12, 200], [9, 40, 13])


async def ask(
    engine: EngineProcess, method: str, path: str, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The answer of an endpoint."""
    view = ServiceView(
        engine=engine,
        model_names=("bytes",),
        options={},
        created_s=0,
        in_threads=asyncio.to_thread,
    )
    endpoints = CompletionsProtocol().endpoints(view)
    [endpoint] = [one for one in endpoints if (one.method, one.path) == (method, path)]
    call = HttpCall(request_id="r", key_label="", headers={}, path_values={}, body=body or {})
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
            bodies = (scored, drawn)
            answers = [await ask(engine, "POST", "/v1/completions", body) for body in bodies]
            return [*answers, await ask(engine, "GET", "/server_info")]
        finally:
            await engine.close()

    scores, draws, info = asyncio.run(served())
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
    assert {"memory", "speculation", "grammar", "python"} <= info["report"].keys()
    assert info["components"]["sampler"] == "core.cpu"
    assert str(byte_checkpoint.parent) not in json.dumps(info)
