"""Program: serves all protocols with a model that answers as a good one would.

It thinks where the prompt begins to, counts, and calls the tool ``get_weather`` if it is offered.
"""

import sys
from collections.abc import Sequence

import uvicorn
from deepinfer_core.config import load_settings
from deepinfer_core.interfaces.async_engine import GenerateRequest
from deepinfer_core.server.app import App, AppParts
from deepinfer_core.server.connection import uvicorn_config
from deepinfer_core.server.protocols import serve_protocols
from deepinfer_core.testing.byte_tokenizer import CONTROL_TOKENS, FIRST_BYTE, byte_tokens
from deepinfer_core.testing.fake_async_engine import FakeAsyncEngine

MARKER = CONTROL_TOKENS.index("｜DSML｜")
THINK, END_OF_THINKING = (CONTROL_TOKENS.index(text) for text in ("<think>", "</think>"))
CALL = (
    '<D| invoke name="get_weather">\n<D| parameter name="location" string="true">San Francisco'
    "</D| parameter>\n</D| invoke>\n</D| calls>"
)


def marked(text: str) -> list[int]:
    """Tokens of a text in which ``D|`` stands for the marker of calls."""
    first, *others = text.split("D|")
    ids = [*byte_tokens(first)]
    for other in others:
        ids += [MARKER, *byte_tokens(other)]
    return ids


def answer(request: GenerateRequest) -> Sequence[int]:
    """Tokens of the answer."""
    prompt = request.prompt_token_ids
    said = bytes([token - FIRST_BYTE for token in prompt if token >= FIRST_BYTE]).decode()
    thoughts = [*byte_tokens("Hm."), END_OF_THINKING] if prompt[-1] == THINK else []
    if "get_weather" not in said:
        return [*thoughts, *byte_tokens("One, two, three.")]
    if said.endswith(" calls>\n"):  # a call is required, and has been begun
        return marked(CALL)
    return [*thoughts, *marked(f"\n\n<D| calls>\n{CALL}")]


def main() -> None:
    """Serve on the port that is named."""
    loaded = load_settings(overrides=[f"server.port={sys.argv[1]}"])
    app = App(
        AppParts(
            engine=FakeAsyncEngine(
                answer, max_model_len=1 << 16, grammar_kinds=("json", "regex", "structural_tag")
            ),
            settings=loaded.settings.server,
            protocols=serve_protocols(loaded),
            model_names=("tiny",),
        )
    )
    uvicorn.Server(uvicorn_config(app, loaded.settings.server)).run()


if __name__ == "__main__":
    main()
