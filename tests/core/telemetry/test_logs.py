"""Does every event arrive once, in one form, and without what a user wrote?"""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from deepinfer_core.config.settings import TelemetrySettings
from deepinfer_core.telemetry.logs import configure_logging, get_logger


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("deepinfer")
    handlers, level = list(root.handlers), ours.level
    yield
    root.handlers[:] = handlers
    ours.setLevel(level)
    structlog.contextvars.clear_contextvars()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def configured(stream: io.StringIO | None = None, **settings: str) -> io.StringIO:
    stream = stream or io.StringIO()
    configure_logging(TelemetrySettings(**settings), stream)  # type: ignore[arg-type]
    return stream


def events(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_keeps_its_name_and_its_fields() -> None:
    stream = configured(level="info")
    get_logger("deepinfer_core.weights.index").info("weights.loaded", bytes=3, name="a")
    [event] = events(stream)
    assert event["event"] == "weights.loaded"
    assert (event["bytes"], event["name"], event["level"]) == (3, "a", "info")
    assert event["logger"] == "deepinfer.weights.index"
    assert str(event["timestamp"]).endswith("Z")


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
        ("off", []),
    ],
)
def test_a_level_shows_itself_and_what_is_more_severe(level: str, shown: list[str]) -> None:
    stream = configured(level=level)
    log = get_logger("deepinfer_core.x")
    for name in ("debug", "info", "warning", "error"):
        getattr(log, name)("it.happened")
    assert [event["level"] for event in events(stream)] == shown


def test_auto_is_json_elsewhere_and_console_on_a_terminal() -> None:
    elsewhere, terminal = configured(), configured(Terminal())
    get_logger("deepinfer_core.x").warning("it.happened")
    assert elsewhere.getvalue() == ""
    assert "it.happened" in terminal.getvalue()
    with pytest.raises(ValueError, match="Expecting value"):
        events(terminal)


def test_a_form_that_is_asked_for_wins_over_the_terminal() -> None:
    stream = configured(Terminal(), format="json")
    get_logger("deepinfer_core.x").warning("it.happened")
    assert events(stream)[0]["event"] == "it.happened"


def test_a_second_set_up_replaces_the_first() -> None:
    first = configured()
    second = configured()
    get_logger("deepinfer_core.x").warning("it.happened")
    assert first.getvalue() == ""
    assert len(events(second)) == 1


def test_other_libraries_lines_take_the_same_way() -> None:
    stream = configured()
    logging.getLogger("uvicorn").warning("hello %s", "world")
    [event] = events(stream)
    assert (event["event"], event["logger"]) == ("hello world", "uvicorn")


def test_bound_context_joins_each_event() -> None:
    stream = configured()
    structlog.contextvars.bind_contextvars(request_id="r1")
    get_logger("deepinfer_core.x").warning("it.happened")
    assert events(stream)[0]["request_id"] == "r1"


@pytest.mark.parametrize("field", ["prompt", "text", "messages", "content", "completion"])
def test_what_a_user_wrote_never_reaches_a_log(field: str) -> None:
    stream = configured()
    get_logger("deepinfer_core.x").warning("it.happened", **{field: "a secret"})
    assert "secret" not in stream.getvalue()
    assert events(stream)[0][field] == "[not logged]"


@pytest.mark.parametrize("name", ["deepinfer_core.x", None])
def test_an_exception_is_one_line_of_json(name: str | None) -> None:
    stream = configured()
    try:
        raise KeyError("deep")
    except KeyError:
        if name:
            get_logger(name).exception("it.failed")
        else:
            logging.getLogger("uvicorn").exception("it failed")
    [event] = events(stream)
    assert "KeyError: 'deep'" in str(event["exception"])


def test_without_a_set_up_an_application_decides(caplog: pytest.LogCaptureFixture) -> None:
    get_logger("deepinfer_core.x").warning("it.happened")
    assert [record.name for record in caplog.records] == ["deepinfer.x"]
