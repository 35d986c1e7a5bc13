"""A real model in a process of its own."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deepinfer_core.config import load_settings
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.outputs import Completion
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.interfaces.async_engine import Finished, GenerateRequest, Started, Tokens
from deepinfer_core.server.engine_process import EngineProcess

Run = Callable[[Callable[[], Any]], None]

ASKED = [
    ((10, 20, 30), SamplingParams(max_tokens=12, temperature=0, logprobs=2, prompt_logprobs=1)),
    (tuple(range(40, 90)), SamplingParams(max_tokens=30, seed=7, top_p=0.9, stop=["e"])),
    ((10, 20, 30), SamplingParams(max_tokens=20, seed=1 << 63, logit_bias={40: 5.0})),
    ((60,), SamplingParams(max_tokens=9, seed=3, min_p=0.1, repetition_penalty=1.3)),
]


async def through_process(engine: EngineProcess, number: int) -> tuple[Any, ...]:
    prompt, params = ASKED[number]
    request = GenerateRequest(request_id=str(number), prompt_token_ids=prompt, params=params)
    items = [item async for item in engine.generate(request)]
    grown = [item for item in items if isinstance(item, Tokens)]
    first, last = items[0], items[-1]
    assert isinstance(first, Started)
    assert isinstance(last, Finished)
    return (
        tuple(token for one in grown for token in one.token_ids),
        "".join(one.text for one in grown),
        tuple(one for part in grown for one in part.logprobs),
        last.prompt_logprobs,
        last.reason,
        (first.prompt_tokens, last.completion_tokens),
    )


def alone(completion: Completion) -> tuple[Any, ...]:
    usage = completion.usage
    return (
        completion.token_ids,
        completion.text,
        completion.logprobs or (),
        completion.prompt_logprobs,
        completion.finish_reason,
        (usage.prompt_tokens, usage.completion_tokens),
    )


def test_answers_are_those_of_an_llm_to_the_last_bit(byte_checkpoint: Path, run_async: Run) -> None:
    loaded = load_settings(
        environ={}, api={"model.path": str(byte_checkpoint), "telemetry.level": "off"}
    )
    with LLM.from_settings(loaded) as llm:
        params = [one for _, one in ASKED]
        done = llm.generate(
            prompt_token_ids=[prompt for prompt, _ in ASKED], sampling_params=params
        )
        kept = llm.loaded.engine.rules

    async def main() -> None:
        engine = EngineProcess(loaded)
        try:
            await engine.ready()
            assert engine.facts.vocabulary == kept.vocabulary
            assert engine.facts.model == byte_checkpoint.name
            assert engine.facts.tokenizer_json == (byte_checkpoint / "tokenizer.json").read_text()
            assert engine.facts.components["sampler"]
            assert engine.facts.report["memory"]["num_blocks"] > 1
            found = await asyncio.gather(*[through_process(engine, n) for n in range(len(ASKED))])
            assert found == [alone(one) for one in done]
        finally:
            await engine.close()

    run_async(main)
