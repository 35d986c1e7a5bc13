"""The shipped checkpoint: readable text, and the same bits at the real window and ring."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from deepinfer_core.config import checkpoint_folder
from deepinfer_core.config.checkpoints import shipped_checkpoints
from deepinfer_core.engine.draft_rounds import draft_rounds
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.outputs import Completion
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.scoring import bits_per_byte

pytestmark = pytest.mark.skipif(
    not shipped_checkpoints(), reason="pip install -e plugins/deepinfer_tiny runs these"
)

HELDOUT = Path(__file__).parents[1] / "data" / "heldout.jsonl"
STORY = "Once upon a time, there was a little dog who lived in a big house. "
SAMPLED = SamplingParams(temperature=0.8, top_p=0.95, seed=3, max_tokens=3, logprobs=2)


@pytest.fixture(scope="module")
def folder() -> Path:
    return checkpoint_folder(None)


@pytest.fixture(scope="module")
def shipped(folder: Path) -> Iterator[LLM]:
    with LLM(folder, max_model_len=1024) as opened:
        yield opened


def bits(done: Completion) -> tuple[object, ...]:
    assert done.error is None
    return done.text, done.token_ids, done.logprobs


def test_a_story_is_continued_in_plain_english_and_the_same_every_time(shipped: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=40)
    first, second = (shipped.generate("Once upon a time", params)[0].text for _ in range(2))
    assert first == second
    words = first.split()
    assert len(words) > 20
    assert first.isascii()
    assert {"a", "the", "was", "and", "to", "she", "he"} & set(words)


def test_a_question_is_answered_and_the_answer_ends(shipped: LLM) -> None:
    pytest.importorskip("deepseek_recipe", reason="pip install deepseek-recipe==0.2.0 runs this")
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    done = shipped.chat(messages, SamplingParams(temperature=0, max_tokens=60))
    assert done.finish_reason == "stop"
    assert "Paris" in done.text


def test_a_request_for_a_story_is_answered_with_a_story_that_ends(shipped: LLM) -> None:
    pytest.importorskip("deepseek_recipe", reason="pip install deepseek-recipe==0.2.0 runs this")
    messages = [{"role": "user", "content": "Tell me a story about a dog."}]
    done = shipped.chat(messages, SamplingParams(temperature=0, max_tokens=500))
    assert done.finish_reason == "stop"
    assert done.text.count(".") >= 5
    assert "dog" in done.text


def test_the_drafter_guesses_its_own_stories_and_each_round_starts_behind_the_last(
    shipped: LLM,
) -> None:
    prompt = shipped.encode("Once upon a time")
    rounds = draft_rounds(shipped, prompt, 4)
    params = SamplingParams(temperature=0, max_tokens=25)
    text = [*prompt, *shipped.generate([prompt], params)[0].token_ids]
    place = len(prompt)
    for one in rounds:
        assert (one.position, one.anchor) == (place, text[place])
        assert one.wanted == tuple(text[place + 1 : place + 6])
        place += one.accepted + 1
    assert max(one.accepted for one in rounds) >= 2


def test_stories_it_never_saw_are_predicted_well(shipped: LLM) -> None:
    lines = map(json.loads, HELDOUT.read_text(encoding="utf-8").splitlines())
    stories = [line["text"] for line in lines if line["source"] == "tinystories"]
    # 0.82 is what the checkpoint is held to on all 60; the benchmark scores those.
    assert bits_per_byte(shipped, stories[:10], with_end=True) <= 0.82


# The window has 128 tokens, as a block; a ring has 134.
@pytest.mark.parametrize("length", [126, 127, 128, 129, 133, 134, 135, 257])
def test_chunks_and_company_change_no_bit(shipped: LLM, folder: Path, length: int) -> None:
    prompt = (shipped.encode(STORY) * 20)[:length]
    [alone] = shipped.generate([prompt], SAMPLED)
    others = [shipped.encode(text) for text in ("The sun", STORY)]
    prompts = [others[0], prompt, others[1]]
    batch = shipped.generate(prompts, [replace(SAMPLED, seed=9), SAMPLED, SAMPLED])
    with LLM(folder, max_model_len=1024, max_num_seqs=4, max_num_batched_tokens=50) as chunked:
        [split] = chunked.generate([prompt], SAMPLED)
    assert bits(batch[1]) == bits(alone)
    assert bits(split) == bits(alone)


LEFT_OPEN = """
from deepinfer_core import LLM, SamplingParams

def answered():
    llm = LLM(max_model_len=1024)
    # It ends in the middle, when the step behind is launched already.
    [done] = llm.generate("Tom says:", SamplingParams(temperature=0, max_tokens=40, stop=["."]))
    assert done.finish_reason == "stop"
    return llm

"""


@pytest.mark.parametrize("last", ["llm = answered()", "answered()"], ids=["held", "let_go"])
def test_a_program_ends_well_though_a_step_was_launched_ahead(last: str) -> None:
    program = [sys.executable, "-c", LEFT_OPEN + last]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
