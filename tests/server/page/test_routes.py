"""The files of the page: whole, of their own, and fit for a policy that allows nothing else."""

import asyncio
import re
from dataclasses import dataclass
from html.parser import HTMLParser

import pytest
from deepinfer_core.server.page.routes import page_routes
from starlette.applications import Starlette
from starlette.types import Message, Scope

APP = Starlette(routes=page_routes())


@dataclass(frozen=True)
class Sent:
    content: bytes
    headers: dict[str, str]


def get(path: str) -> Sent:
    """What the routes send to a GET."""
    messages: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        messages.append(message)

    scope: Scope = {"type": "http", "method": "GET", "path": path, "headers": []}
    asyncio.run(APP(scope, receive, send))
    start, body = messages
    assert start["status"] == 200
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    return Sent(body["body"], headers)


ANSWERS = {route.path: get(route.path) for route in page_routes()}
INDEX = ANSWERS["/"].content.decode()
SCRIPTS = {path: sent.content.decode() for path, sent in ANSWERS.items() if path.endswith(".js")}


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def tags() -> list[tuple[str, dict[str, str | None]]]:
    parser = _Tags()
    parser.feed(INDEX)
    return parser.tags


def test_every_file_that_the_page_names_is_there() -> None:
    named = {
        f"/{value}"
        for _, attributes in tags()
        for name in ("src", "href")
        if (value := attributes.get(name)) and not value.startswith("#")
    }
    assert {"/page/page.js", "/page/style.css", "/page/icon.svg"} <= named <= ANSWERS.keys()


def test_every_script_that_another_imports_is_there_and_none_is_left_over() -> None:
    named = {
        f"/page/{name}"
        for text in SCRIPTS.values()
        for name in re.findall(r'from "\./([\w.]+)"', text)
    }
    assert named | {"/page/page.js"} == SCRIPTS.keys()


@pytest.mark.parametrize("path", sorted(ANSWERS))
def test_a_browser_may_load_nothing_else(path: str) -> None:
    answer = ANSWERS[path]
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "//" not in policy
    text = answer.content.decode().replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|@import|url\(", text)
    assert answer.headers["content-type"].split(";")[0] in {
        "text/html", "text/css", "text/javascript", "image/svg+xml",
    }  # fmt: skip


def test_the_page_has_no_script_and_no_style_within_its_text() -> None:
    for tag, attributes in tags():
        assert tag != "style"
        assert tag != "script" or attributes.get("src")
        assert not {name for name in attributes if name == "style" or name.startswith("on")}


def test_no_script_reads_a_text_as_markup_or_as_a_program() -> None:
    for text in SCRIPTS.values():
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|\beval\b|Function\(", text)


def test_every_field_has_a_label_and_every_button_a_type() -> None:
    labels = {attributes.get("for") for tag, attributes in tags() if tag == "label"}
    fields = [a for tag, a in tags() if tag in {"input", "select", "textarea"}]
    assert {a["id"] for a in fields} <= labels
    assert all(a.get("type") for tag, a in tags() if tag == "button")
