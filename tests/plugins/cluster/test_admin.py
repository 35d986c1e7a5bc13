"""What is understood of the master's administration, and what if it says nothing?"""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from deepinfer_cluster.admin import Figures, HttpAdmin, NotTold

METRICS = """\
# HELP master_key_count Total number of keys
# TYPE master_key_count gauge
master_key_count 7
master_allocated_bytes 798784
master_total_capacity_bytes 536870912
master_evicted_key_count 3
master_put_start_duration_bucket{le="0.5"} 12
"""


class Master(BaseHTTPRequestHandler):
    """Answers from what its server was given."""

    def do_GET(self) -> None:
        text = self.server.answers.get(self.path)
        self.send_response(200 if text is not None else 404)
        self.end_headers()
        self.wfile.write((text or "").encode())

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def master() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Master) as server:
        server.answers = {"/metrics": METRICS, "/get_all_keys": "a/b/1\na/b/2\n"}
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def admin(server: HTTPServer, master_port: int | None = None) -> HttpAdmin:
    port = server.server_address[1]
    return HttpAdmin(f"http://127.0.0.1:{port}", f"127.0.0.1:{master_port or port}")


def test_figures_and_names_are_read(master: HTTPServer) -> None:
    found = admin(master)
    assert found.figures() == Figures(
        records=7, used_bytes=798784, capacity_bytes=536870912, evicted=3
    )
    assert found.names() == ["a/b/1", "a/b/2"]
    assert found.is_ready()


def test_no_names_are_none(master: HTTPServer) -> None:
    master.answers["/get_all_keys"] = ""
    assert admin(master).names() == []


def test_figures_that_are_missing_are_named(master: HTTPServer) -> None:
    master.answers["/metrics"] = METRICS.replace("master_key_count 7\n", "")
    with pytest.raises(NotTold, match="master_key_count"):
        admin(master).figures()


def test_who_does_not_answer_is_named(master: HTTPServer) -> None:
    master.answers.clear()
    found = admin(master)
    for ask in (found.figures, found.names):
        with pytest.raises(NotTold, match=r"127\.0\.0\.1:\d+ does not answer"):
            ask()
    assert not found.is_ready()


def test_a_master_that_takes_no_calls_of_clients_is_not_ready(master: HTTPServer) -> None:
    assert not admin(master, master_port=1).is_ready()


def test_proxies_are_passed_by(master: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert admin(master).figures().records == 7
