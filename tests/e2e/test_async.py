"""The engine in a thread of its own, through everything."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from deepinfer_core.config import load_settings
from deepinfer_core.engine.async_llm import AsyncLLM
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import ConfigError, EngineError, RequestError

PROMPTS = ["one", "two", [0, 20, 30]]
PARAMS = SamplingParams(n=2, seed=5, max_tokens=12, ignore_eos=True, logprobs=1)


def test_it_gives_what_an_llm_gives(llm: LLM, byte_checkpoint: Path) -> None:
    wanted = llm.generate(PROMPTS, PARAMS)

    async def main() -> None:
        async with AsyncLLM(byte_checkpoint, max_num_seqs=4, max_model_len=512) as found:
            done = await found.generate(PROMPTS, PARAMS)
            stream = await found.submit("one", PARAMS)
            text = "".join([delta.text async for delta in stream if delta.sample == 0])
            registry = found.metrics
            ended = registry.get_sample_value(
                "deepinfer_requests_finished_total", {"reason": "length"}
            )
            assert "deepinfer_generation_tokens_total" in found.metrics_text()
        assert [one.token_ids for one in done] == [one.token_ids for one in wanted]
        assert [one.logprobs for one in done] == [one.logprobs for one in wanted]
        assert text == wanted[0].text
        assert ended == 2 * (len(PROMPTS) + 1)

    asyncio.run(main(), debug=True)


def test_it_is_built_from_settings_and_keeps_to_their_number_of_requests(
    byte_checkpoint: Path,
) -> None:
    api = {"model.path": str(byte_checkpoint), "engine.max_queued": 1}

    async def main() -> None:
        async with AsyncLLM.from_settings(load_settings(api=api)) as llm:
            with pytest.raises(RequestError, match="at most 1 answers"):
                await llm.submit("a", SamplingParams(n=2))
            assert llm.encode("a") == [llm.loaded.config.bos_token_id, *llm.tokenizer.encode("a")]
        with pytest.raises(EngineError, match="closed"):
            _ = llm.loaded

    asyncio.run(main())


def test_a_keyword_it_does_not_know_is_refused_with_the_nearest(byte_checkpoint: Path) -> None:
    with pytest.raises(ConfigError, match="max_queued"):
        AsyncLLM(byte_checkpoint, max_queue=1)


LEFT_OPEN = """
import asyncio, sys, threading, time
from deepinfer_core import AsyncLLM, SamplingParams
from deepinfer_core.engine import engine_thread

llm = AsyncLLM(sys.argv[1], max_model_len=512)
params = SamplingParams(max_tokens=400, ignore_eos=True)

async def main():
    stream = await llm.submit("a", params)
    await anext(stream)
    return stream

stream = asyncio.run(main(), debug=True)
"""

HANGS = """
engine_thread._EXIT_WAIT_S = 0.2
begun = threading.Event()
llm.loaded.engine.runner.launch = lambda *_: (begun.set(), time.sleep(1000))
begun.wait()
"""

FORKS = """
import os
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.parametrize("more", ["", HANGS, FORKS], ids=["runs", "hangs", "forks"])
def test_a_program_ends_though_it_left_one_open(byte_checkpoint: Path, more: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEFT_OPEN + more, str(byte_checkpoint)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
