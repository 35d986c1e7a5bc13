"""Do answers go on while metrics are written?"""

import asyncio

from deepinfer_core.server.figure_text import text_of
from deepinfer_core.telemetry.board import Board
from deepinfer_core.telemetry.registry import exposition, new_registry


def test_others_have_their_turn_between_any_two_metrics() -> None:
    async def main() -> tuple[str, int]:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        text = await text_of(board.read())
        task.cancel()
        return text, turns

    board = Board({"build_info": (("1", "m"),), "component_info": (("gemm", "a"),)})
    board.number("requests_total").value = 3
    text, turns = asyncio.run(main())
    assert turns >= len({one.metric.name for one in board.read()})
    assert text == exposition(new_registry(board))
