"""How does a program that runs an event loop stream text to many readers at once?

Runs the checkpoint that is installed (deepinfer-tiny), or the folder given as the only argument::

    python examples/async_streaming.py [CHECKPOINT]

Shows several streams at once, a request that is left early, one with a time limit of its reader,
and what happens when there is no room.
"""

import asyncio
import sys
from contextlib import AsyncExitStack

from deepinfer_core.errors import EngineBusy

from deepinfer_core import AsyncLLM, RequestOptions, SamplingParams

PROMPTS = ["Once upon a time", "The little dog", "One day, a girl named Lucy"]
PARAMS = SamplingParams(temperature=0.7, seed=1, max_tokens=40)
LONG = SamplingParams(temperature=0.7, seed=1, max_tokens=2000, ignore_eos=True)


async def several_readers(llm: AsyncLLM) -> None:
    """Each reader gets its own text; the engine computes all of them together."""

    async def read(prompt: str) -> str:
        text = prompt
        async with await llm.submit(prompt, PARAMS) as stream:
            async for delta in stream:
                text += delta.text  # a server would send this piece on
        return text

    for text in await asyncio.gather(*map(read, PROMPTS)):
        print(text)


async def leaving_early(llm: AsyncLLM) -> None:
    """Whoever leaves the block ends the request; nothing more is computed for it."""
    async with await llm.submit(PROMPTS[0], LONG) as stream:
        async for delta in stream:
            print(f"first words: {delta.text!r}")
            break
    [done] = await stream.result()
    print(f"[{done.finish_reason}, {done.usage.completion_tokens} tokens]")


async def time_limit(llm: AsyncLLM) -> None:
    """A reader that is cancelled, here by a time limit, ends its request too."""
    stream = await llm.submit(PROMPTS[1], LONG, options=RequestOptions(priority=-1))
    try:
        async with asyncio.timeout(0.2):
            await stream.result()
    except TimeoutError:
        [done] = await stream.result()
        print(f"[{done.finish_reason} before {LONG.max_tokens} tokens]")


async def no_room(llm: AsyncLLM) -> None:
    """One that does not wait for room learns at once that there is none."""
    async with AsyncExitStack() as stack:
        try:
            for _ in range(5):
                stream = await llm.submit(PROMPTS[0], LONG, wait=False)
                await stack.enter_async_context(stream)
        except EngineBusy as error:
            print(error)


async def main() -> None:
    """Run all four."""
    model = sys.argv[1] if len(sys.argv) > 1 else None
    async with AsyncLLM(model, max_queued=4) as llm:
        for show in (several_readers, leaving_early, time_limit, no_room):
            print(f"\n== {(show.__doc__ or '').splitlines()[0]}")
            await show(llm)


if __name__ == "__main__":
    asyncio.run(main())
