"""One ``LLM`` that several threads call."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.sampling_params import SamplingParams

THREADS = 3
PARAMS = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)


def at_once(calls: list[Callable[[], list[tuple[int, ...]]]]) -> list[list[tuple[int, ...]]]:
    """Start all calls together, each in a thread of its own."""
    start = Barrier(len(calls))

    def run(call: Callable[[], list[tuple[int, ...]]]) -> list[tuple[int, ...]]:
        start.wait(timeout=30)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def test_calls_of_several_threads_get_what_they_get_alone(llm: LLM) -> None:
    prompts = [[f"prompt {thread}", "again"] for thread in range(THREADS)]

    def call(mine: list[str]) -> list[tuple[int, ...]]:
        return [done.token_ids for done in llm.generate(mine, PARAMS)]

    alone = [call(mine) for mine in prompts]
    assert at_once([partial(call, mine) for mine in prompts]) == alone


def test_a_stream_that_is_left_in_one_thread_leaves_the_others_alone(llm: LLM) -> None:
    [wanted] = llm.generate("kept", PARAMS)

    def keeps() -> list[tuple[int, ...]]:
        return [done.token_ids for done in llm.generate("kept", PARAMS)]

    def leaves() -> list[tuple[int, ...]]:
        for _ in range(5):
            with llm.stream("left", PARAMS) as stream:
                next(stream)
        return []

    assert at_once([keeps, leaves]) == [[wanted.token_ids], []]
    assert len(llm.engine.batch) == 0
