"""A server with the page over an engine that follows a script, and a browser that looks at it."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from deepinfer_core.config.server import ServerSettings
from deepinfer_core.interfaces.async_engine import GenerateRequest
from deepinfer_core.interfaces.grammar import GRAMMAR_KINDS
from deepinfer_core.interfaces.protocol import Protocol
from deepinfer_core.server.app import App, AppParts
from deepinfer_core.server.completions.protocol import CompletionsProtocol
from deepinfer_core.server.page.routes import page_routes
from deepinfer_core.server.protocols import ServedProtocol
from deepinfer_core.testing.byte_tokenizer import CONTROL_TOKENS, byte_tokens
from deepinfer_core.testing.fake_async_engine import FakeAsyncEngine
from deepinfer_core.testing.served import served

from tests.page.browser import CHROMIUM, DRIVER, Browser

THINK, THINK_END, MARK = map(CONTROL_TOKENS.index, ("<think>", "</think>", "｜DSML｜"))

Serve = Callable[..., AbstractContextManager[str]]


def tagged(text: str) -> tuple[int, ...]:
    """Tokens of a text in which ``@`` stands for the mark of tool calls."""
    first, *others = map(byte_tokens, text.split("@"))
    return (*first, *(token for part in others for token in (MARK, *part)))


CALL = tagged(
    '\n\n<@ calls>\n<@ invoke name="get_weather">\n<@ parameter name="place" string="true">Oslo'
    "</@ parameter>\n</@ invoke>\n</@ calls>"
)


def answer(request: GenerateRequest) -> tuple[int, ...]:
    """Thinks if it is asked to, calls a tool if there is one, and then says what it was told."""
    prompt = request.prompt_token_ids
    text = bytes(token - len(CONTROL_TOKENS) for token in prompt if token >= len(CONTROL_TOKENS))
    thought = (*byte_tokens("Let me think."), THINK_END) if prompt[-1] == THINK else ()
    if b"<tool_result>" in text:
        return (*thought, *byte_tokens("It is cold there."))
    if b"get_weather" in text:
        return (*thought, *CALL)
    if b"endless" in text:
        return (*thought, *byte_tokens("on and " * 1000))
    return (*thought, *byte_tokens("Hello <b>you</b>, 世界!"))


class CountedEngine(FakeAsyncEngine):
    """The engine of the script, with metrics of what it was asked."""

    async def metrics_text(self) -> str:
        drawn = sum(len(answer(request)) for request in self.requests)
        counts = {
            "requests_total": len(self.requests),
            "requests_running": self.in_work,
            "requests_waiting": 0,
            "generation_tokens_total": drawn,
            'rows_total{phase="prompt"}': sum(len(r.prompt_token_ids) for r in self.requests),
            'kv_cache_blocks{state="used"}': self.in_work,
            'kv_cache_blocks{state="free"}': 10,
        }
        return "".join(f"deepinfer_{name} {value}\n" for name, value in counts.items())


def protocols(*, with_chat: bool) -> list[ServedProtocol]:
    found: dict[str, Protocol] = {"core.completions": CompletionsProtocol()}
    if with_chat:
        reason = "pip install -e ./deepinfer_recipe_bridge runs this"
        chat = pytest.importorskip("deepinfer_recipe_bridge.chat", reason=reason)
        options = pytest.importorskip("deepinfer_recipe_bridge.options", reason=reason)
        found["bridge.chat"] = chat.build(options.ChatOptions(), None)
    return [
        ServedProtocol(name=name, distribution="", options={}, protocol=protocol)
        for name, protocol in found.items()
    ]


@pytest.fixture
def serve(browser: Browser) -> Serve:
    """Serve with the page, in a thread of its own, and give the address."""

    @contextmanager
    def serving(
        *,
        with_chat: bool = True,
        keys: dict[str, str] | None = None,
        kinds: tuple[str, ...] = GRAMMAR_KINDS,
    ) -> Iterator[str]:
        address: list[str] = []
        is_up, is_over = threading.Event(), threading.Event()
        loaded = protocols(with_chat=with_chat)

        async def run() -> None:
            engine = CountedEngine(answer, step_s=0.01, grammar_kinds=kinds)
            settings = ServerSettings()
            app = App(
                AppParts(
                    engine=engine,
                    settings=settings,
                    protocols=loaded,
                    model_names=("DeepSeek-V4.1-Flash",),
                    keys=keys or {},
                    pages=page_routes(),
                )
            )
            async with served(app, settings) as found:
                address.append(found)
                is_up.set()
                await asyncio.to_thread(is_over.wait)

        thread = threading.Thread(target=asyncio.run, args=(run(),))
        thread.start()
        assert is_up.wait(20)
        try:
            yield address[0]
        finally:
            browser.open("about:blank")  # or the page would complain that nobody answers
            is_over.set()
            thread.join()

    return serving


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("needs chromium and chromedriver (Debian: chromium, chromium-driver)")
    opened = Browser(tmp_path_factory.mktemp("profile"))
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture(autouse=True)
def no_complaints(browser: Browser) -> Iterator[None]:
    """No test may leave an error in the console that it does not take itself."""
    browser.complaints()
    yield
    assert browser.complaints() == []
