"""The page in a browser: it chats, streams, thinks, calls tools, stops, and its charts move."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.page.browser import Browser

Serve = Callable[..., AbstractContextManager[str]]


def opened(browser: Browser, address: str) -> None:
    browser.open(f"{address}/")
    browser.run("sessionStorage.clear()")
    browser.open(f"{address}/")
    browser.wait_text("#state", "ready")


def ask(browser: Browser, text: str) -> None:
    browser.write("#prompt", text)
    browser.press("Enter")


def wait_until_idle(browser: Browser) -> None:
    script = "return document.querySelector('#stop').disabled"
    browser.wait(lambda: browser.run(script), "the end of the answer")


def last_answer(browser: Browser) -> str:
    return str(browser.text(".log > .assistant:last-child .bubble > .words"))


def sent(browser: Browser) -> list[dict[str, object]]:
    """Bodies of the chat calls since ``listen``."""
    return [json.loads(body) for body in browser.run("return window.sentBodies")]


def listen(browser: Browser) -> None:
    browser.run(
        "window.sentBodies = []; const before = window.fetch;"
        "window.fetch = (path, options) => {"
        " if (options.body) window.sentBodies.push(options.body); return before(path, options); }"
    )


def test_it_chats_and_shows_the_answer_while_it_comes(browser: Browser, serve: Serve) -> None:
    with serve() as address:
        opened(browser, address)
        browser.run(
            "window.seen = []; new MutationObserver(() => window.seen.push("
            "document.querySelector('.assistant .bubble > .words')?.textContent ?? ''))"
            ".observe(document.querySelector('#log'), {childList: true, subtree: true,"
            " characterData: true})"
        )
        ask(browser, "hi")
        browser.wait_text(".log .foot", "tokens in")
        # Markup of a model is text.
        assert last_answer(browser) == "Hello <b>you</b>, 世界!"
        seen = {text for text in browser.run("return window.seen") if text}
        assert len(seen) > 5
        assert all("Hello <b>you</b>, 世界!".startswith(text) for text in seen)
        assert browser.text(".thought .words") == "Let me think."
        assert browser.run("return document.activeElement.id") == "prompt"


def test_thinking_can_be_switched_off_by_keyboard(browser: Browser, serve: Serve) -> None:
    with serve() as address:
        opened(browser, address)
        listen(browser)
        browser.run("document.querySelector('#thinking').focus()")
        browser.press("Space")
        ask(browser, "hi")
        browser.wait_text(".log .foot", "tokens in")
        assert browser.text(".thought") == ""
        assert sent(browser)[0]["thinking"] == {"type": "disabled"}


def test_a_conversation_has_its_history_until_a_new_one_begins(
    browser: Browser, serve: Serve
) -> None:
    with serve() as address:
        opened(browser, address)
        listen(browser)
        browser.click("#thinking")
        for text in ("one", "two"):
            ask(browser, text)
            wait_until_idle(browser)
        roles = [message["role"] for message in sent(browser)[1]["messages"]]  # type: ignore[attr-defined]
        assert roles == ["user", "assistant", "user"]
        browser.click("#clear")
        assert browser.text("#log") == ""
        ask(browser, "three")
        wait_until_idle(browser)
        assert sent(browser)[2]["messages"] == [{"role": "user", "content": "three"}]


def test_a_tool_gets_the_result_that_is_typed(browser: Browser, serve: Serve) -> None:
    with serve() as address:
        opened(browser, address)
        listen(browser)
        browser.run("document.querySelector('#tools').closest('details').open = true")
        browser.click("#example-tool")
        ask(browser, "weather?")
        browser.wait_text(".call code", 'get_weather({"place": "Oslo"})')
        wait_until_idle(browser)
        browser.write(".call textarea", "-3 degrees")
        browser.click(".assistant form button")
        browser.wait_text(".log > .assistant:last-child .words", "It is cold there.")
        wait_until_idle(browser)
        assert browser.text(".log > .tool .words") == "-3 degrees"
        *_, result = sent(browser)[1]["messages"]  # type: ignore[misc]
        assert (result["role"], result["content"]) == ("tool", "-3 degrees")


def test_an_answer_is_stopped_in_the_engine_too(browser: Browser, serve: Serve) -> None:
    with serve() as address:
        opened(browser, address)
        ask(browser, "endless")
        browser.wait_text(".assistant .words", "on and on")
        browser.press("Escape")
        wait_until_idle(browser)
        assert "ended by you" in browser.text(".foot")
        wait_for_work = "return fetch('server_info').then(x => x.json()).then(x => x.in_work)"
        browser.wait(lambda: browser.run(wait_for_work) == 0, "an idle engine")
        browser.click("#clear")
        ask(browser, "hi")
        browser.wait_text(".log > .assistant:last-child .words", "Hello")
        wait_until_idle(browser)


def test_settings_reach_the_service_and_a_wrong_one_is_named(
    browser: Browser, serve: Serve
) -> None:
    with serve() as address:
        opened(browser, address)
        listen(browser)
        browser.click("#thinking")
        for field, text in {"#temperature": "0.5", "#max-tokens": "40", "#seed": "7"}.items():
            browser.write(field, text)
        choose(browser, "#format", "json_schema")
        browser.write("#schema", '{"type": "object"')
        ask(browser, "json")
        browser.wait_text(".error .words", "JSON Schema of the answer")
        assert sent(browser) == []
        browser.write("#schema", '{"type": "object", "properties": {}}')
        browser.press("Tab")
        browser.click("#send")
        wait_until_idle(browser)
        [body] = sent(browser)
        assert (body["temperature"], body["max_tokens"], body["seed"]) == (0.5, 40, 7)
        assert body["response_format"]["type"] == "json_schema"  # type: ignore[index]


def choose(browser: Browser, selector: str, value: str) -> None:
    browser.run(
        "const field = document.querySelector(arguments[0]); field.value = arguments[1];"
        "field.dispatchEvent(new Event('input', {bubbles: true}))",
        selector,
        value,
    )


def shown_forms(browser: Browser) -> dict[str, bool]:
    """Whether each form of an answer can be chosen."""
    script = (
        "return [...document.querySelectorAll('#format option')].map(x => [x.value, !x.disabled])"
    )
    return dict(browser.run(script))


def test_temperature_is_offered_only_where_it_means_something(
    browser: Browser, serve: Serve
) -> None:
    is_offered = "return !document.querySelector('#temperature').disabled"
    with serve() as address:
        opened(browser, address)
        listen(browser)
        assert not browser.run(is_offered)
        assert browser.run("return document.querySelector('#temperature-help').checkVisibility()")
        ask(browser, "hi")
        wait_until_idle(browser)
        browser.click("#thinking")
        assert browser.run(is_offered)
        assert not browser.run(
            "return document.querySelector('#temperature-help').checkVisibility()"
        )
        ask(browser, "hi")
        wait_until_idle(browser)
        assert ["temperature" in body for body in sent(browser)] == [False, True]
        browser.click("#thinking")
        choose(browser, "#mode", "completion")
        assert browser.run(is_offered)


def test_forms_that_nothing_enforces_are_not_offered_and_the_reason_is_said(
    browser: Browser, serve: Serve
) -> None:
    help_is_shown = "return document.querySelector('#format-help').checkVisibility()"
    with serve() as address:
        opened(browser, address)
        assert shown_forms(browser) == {"text": True, "json_object": True, "json_schema": True}
        assert not browser.run(help_is_shown)
    with serve(kinds=("json_object",)) as address:
        opened(browser, address)
        assert shown_forms(browser) == {"text": True, "json_object": True, "json_schema": False}
        assert "does not take every form" in browser.text("#format-help")
    with serve(kinds=()) as address:
        opened(browser, address)
        assert shown_forms(browser) == {"text": True, "json_object": False, "json_schema": False}
        assert browser.run(help_is_shown)
        assert "no grammar component" in browser.text("#format-help")
        choose(browser, "#format", "json_object")  # as a form that a browser filled in again
        value = "return document.querySelector('#format').value"
        browser.wait(lambda: browser.run(value) == "text", "the form that is offered")
        ask(browser, "hi")
        browser.wait_text(".assistant .words", "Hello")
        wait_until_idle(browser)


def test_charts_move_and_components_are_listed(browser: Browser, serve: Serve) -> None:
    path = "return document.querySelector('figure .trace').getAttribute('d')"
    with serve() as address:
        opened(browser, address)
        browser.wait_text("#components tbody", "fake.script")
        first = browser.wait(lambda: browser.run(path), "a line in the first chart")
        browser.wait(lambda: browser.run(path) != first, "another line")
        ask(browser, "hi")
        label = "return document.querySelector('figure svg').getAttribute('aria-label')"
        moved = browser.wait(
            lambda: (text := browser.run(label)) and "written 0/s" not in text and text, "a rate"
        )
        assert moved.startswith("Throughput")
        wait_until_idle(browser)
        browser.click("#live")
        still = browser.run(path)
        browser.run("return new Promise(done => setTimeout(done, 1500))")
        assert browser.run(path) == still


def test_without_the_bridge_it_says_so_and_completes_texts(browser: Browser, serve: Serve) -> None:
    with serve(with_chat=False) as address:
        opened(browser, address)
        browser.wait_text("#notice", "deepinfer-recipe-bridge")
        assert browser.run("return document.querySelector('#notice').checkVisibility()")
        assert browser.run("return document.querySelector('#mode').value") == "completion"
        ask(browser, "Once")
        browser.wait_text(".assistant .words", "Hello")
        wait_until_idle(browser)


def test_a_key_is_asked_for_kept_in_the_tab_and_sent(browser: Browser, serve: Serve) -> None:
    with serve(keys={"me": "secret-key"}) as address:
        browser.open(f"{address}/")
        browser.run("sessionStorage.clear()")
        browser.open(f"{address}/")
        browser.wait_text("#state", "key needed")
        assert browser.run("return document.activeElement.id") == "key"
        assert all("401" in line for line in browser.complaints())
        browser.write("#key", "secret-key")
        browser.press("Tab")
        browser.wait_text("#state", "ready")
        ask(browser, "hi")
        browser.wait_text(".assistant .words", "Hello")
        wait_until_idle(browser)
        assert browser.run("return [localStorage.length, document.cookie]") == [0, ""]


def test_nothing_overflows_on_a_phone_and_every_control_is_reachable(
    browser: Browser, serve: Serve
) -> None:
    with serve() as address:
        opened(browser, address)
        try:
            browser.look(width=360, height=740)
            wide = "return document.documentElement.scrollWidth"
            assert browser.run(wide) == 360
            ask(browser, "W" * 200)
            browser.wait_text(".assistant .words", "Hello")
            wait_until_idle(browser)
            assert browser.run(wide) == 360
            log = "const log = document.querySelector('#log');"
            assert browser.run(f"{log} return log.scrollWidth - log.clientWidth") == 0
        finally:
            browser.look(width=1360, height=900)
        found = browser.run(
            "return [...document.querySelectorAll('input, select, textarea, button')]"
            ".filter(x => x.tabIndex < 0 || !(x.labels?.length || x.textContent)).map(x => x.id)"
        )
        assert found == []


def test_the_policy_keeps_foreign_scripts_out(browser: Browser, serve: Serve) -> None:
    with serve() as address:
        opened(browser, address)
        browser.run(
            "const s = document.createElement('p'); document.body.append(s);"
            "try { s.innerHTML = '<img src=x>'; } catch (error) { s.textContent = error.name; }"
        )
        assert browser.text("body > p:last-child") == "TypeError"
        assert any("TrustedHTML" in line for line in browser.complaints())
