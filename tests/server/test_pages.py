"""Does the page about the server say what the server does?"""

import logging
import re
from pathlib import Path

import pytest
from deepinfer_core.config.server import ServerSettings
from deepinfer_core.config.settings import EngineSettings
from deepinfer_core.server.call_record import CallRecord, write_access_log
from deepinfer_core.server.http_metrics import HTTP_METRICS

PAGE = (Path(__file__).parents[2] / "docs" / "server.md").read_text()


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_metric_stands_on_the_page_as_it_is() -> None:
    listed = [line for line in PAGE.splitlines() if line.startswith("| `deepinfer_")]
    assert listed == [
        f"| `{one.full_name}` | {one.kind} | {' '.join(f'`{name}`' for name in one.labels)} "
        f"| {one.help} |"
        for one in HTTP_METRICS
    ]


def test_every_limit_is_a_setting() -> None:
    rows = [line.split("|") for line in section("Limits").splitlines() if line.startswith("| ")]
    named = {row[2].strip(" `") for row in rows}
    settings = set(ServerSettings.model_fields)
    settings |= {f"engine.{name}" for name in EngineSettings.model_fields}
    limits = {name for name in named if "_" in name}
    assert {"max_body_bytes", "engine.max_queued", "queue_timeout_s"} <= limits
    assert limits <= settings


def test_the_page_lists_what_the_access_log_has(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="deepinfer"):
        write_access_log(CallRecord(request_id="a"))
    [logged] = [record.msg for record in caplog.records]
    fields = set(logged) - {"event", "logger", "level", "timestamp"}
    text = section("What the server tells").partition("`call.answered` at level `info`:")[2]
    listed = re.findall(r"`(\w+)`", text.partition(". `protocol` is")[0])
    assert set(listed) == fields
    assert len(listed) == len(fields)
