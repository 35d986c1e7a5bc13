"""Program: serves all installed protocols over an engine that follows a script, and can be asked.

Prints its port. Each line on standard input is answered with what it holds: see
``testing.asked_service``. It ends when its standard input does.
"""

import asyncio
import sys

from deepinfer_core.config import load_settings
from deepinfer_core.interfaces.async_engine import GenerateRequest
from deepinfer_core.server.app import App, AppParts
from deepinfer_core.server.protocols import serve_protocols
from deepinfer_core.testing.asked_service import answer_questions
from deepinfer_core.testing.fake_async_engine import FakeAsyncEngine
from deepinfer_core.testing.served import served

MODEL = "fake"
KINDS = ("json_schema", "json_object", "regex")


def short_answer(request: GenerateRequest) -> str:
    """The same for everybody."""
    return "a short answer"


async def main() -> None:
    """Serve."""
    loaded = load_settings(None, (), environ={})
    engine = FakeAsyncEngine(short_answer, grammar_kinds=KINDS)
    app = App(
        AppParts(
            engine=engine,
            settings=loaded.settings.server,
            protocols=serve_protocols(loaded),
            model_names=(MODEL,),
        )
    )
    async with served(app, loaded.settings.server) as url:
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        await asyncio.to_thread(answer_questions, engine.forget)
    assert engine.in_work == 0
    app.close()


asyncio.run(main())
