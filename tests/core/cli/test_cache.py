"""``deepinfer cache``: what is kept, is it whole, and what is removed when it is asked for?"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from deepinfer_core.cache.stored import stored_groups
from deepinfer_core.config import load_settings
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.model_folder import read_config
from deepinfer_core.engine.page_sizes import planned_layout
from deepinfer_core.interfaces.kv_store import BlockGroup, StoreItem
from deepinfer_core.stores.disk.clock import Clock
from deepinfer_core.stores.disk.index import AGE_STEP_S
from deepinfer_core.stores.disk.store import DiskStore
from deepinfer_core.stores.retention import Limits
from deepinfer_core.testing.contracts.kv_store_suite import block, key
from deepinfer_core.testing.store_groups import FOREVER

Run = Callable[..., subprocess.CompletedProcess[str]]
ONE, OTHER = bytes.fromhex("ab" * 32), bytes.fromhex("cd" * 32)
CAPACITY = 32 << 20
ELSEWHERE = """
import sys
from pathlib import Path
from deepinfer_core.stores.disk.store import DiskStore
from deepinfer_core.stores.retention import Limits
limits = Limits(
    capacity_bytes=int(sys.argv[2]), retention_s={"agent": 1e6, "state": 1e6}, age_step_s=3600.0
)
store = DiskStore(Path(sys.argv[1]), limits, durable=False)
store.open([])
print("open", flush=True)
sys.stdin.read()
print(store.report().records)
store.close()
"""
"""Prints how many blocks there are when it is told to end."""


class Place:
    """A configuration, its store, and blocks to put there."""

    def __init__(self, folder: Path, checkpoint: Path) -> None:
        self.folder = folder / "store"
        self.file = folder / "deepinfer.toml"
        self.file.write_text(
            f"""
plugins = {{ autoload = false }}
[model]
path = "{checkpoint}"
[components.kv_store]
use = "core.disk"
options = {{ folder = "{self.folder}", capacity_bytes = {CAPACITY}, durable = false }}
"""
        )
        settings = load_settings(self.file, environ={}).settings
        layout = planned_layout(read_config(checkpoint, settings), settings)
        self.groups = stored_groups(layout, truncates=False)
        self.stores: list[DiskStore] = []

    def opened(self, age_s: float = 0.0) -> DiskStore:
        limits = Limits(
            capacity_bytes=CAPACITY,
            retention_s={"agent": 1e6, "chat": 2e6, "state": 180.0},
            age_step_s=AGE_STEP_S,
        )
        clock = Clock(wall=lambda: time.time() - age_s)
        store = DiskStore(self.folder, limits, durable=False, clock=clock)
        store.open(self.groups)
        self.stores.append(store)
        return store

    def filled(self, age_s: float = 0.0) -> None:
        """Three blocks of one namespace, one of the other."""
        store = self.opened(age_s)
        items = [self.item(("text", depth), ONE) for depth in range(3)]
        items.append(replace(self.item("other", OTHER), retention="chat"))
        outcomes = store.store("blocks", items, deadline_s=FOREVER)
        assert {one.status for one in outcomes} == {"stored"}
        store.close()

    @property
    def group(self) -> BlockGroup:
        return self.groups[0]

    def item(self, name: object, namespace: bytes) -> StoreItem:
        return StoreItem(key=key(name), data=block(name, self.group), namespace=namespace, depth=0)

    @contextmanager
    def written_elsewhere(self) -> Iterator[None]:
        """Another process has the store open, and writes."""
        run = subprocess.Popen(
            [sys.executable, "-c", ELSEWHERE, str(self.folder), str(CAPACITY)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert run.stdout is not None
        assert run.stdout.readline() == "open\n"
        yield
        assert run.communicate()[0] == "4\n"

    def damage(self, name: object) -> None:
        path = self.folder / "data.mdb"
        data = bytearray(path.read_bytes())
        data[data.rindex(block(name, self.group)) + 5] ^= 1
        path.write_bytes(data)


@pytest.fixture
def place(tmp_path: Path, byte_checkpoint: Path) -> Iterator[Place]:
    found = Place(tmp_path, byte_checkpoint)
    yield found
    for store in found.stores:
        store.close()


@pytest.fixture
def cache(deepinfer: Run, place: Place) -> Run:
    def run(action: str, *options: str) -> subprocess.CompletedProcess[str]:
        return deepinfer("cache", action, "-c", str(place.file), *options)

    return run


def data_of(done: subprocess.CompletedProcess[str], status: int = 0) -> dict[str, object]:
    assert (done.returncode, done.stderr) == (status, "")
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_stats_count_blocks_beside_the_process_that_writes(cache: Run, place: Place) -> None:
    place.filled()
    with place.written_elsewhere():
        found = data_of(cache("stats", "--json"))
    assert found["store"] == "core.disk"
    assert (found["records"], found["capacity_bytes"], found["problem"]) == (4, CAPACITY, "")
    size = place.group.block_bytes
    assert found["groups"] == {
        "blocks": {"blocks": 4, "bytes": 4 * size, "classes": {"agent": 3, "chat": 1}},
        place.groups[1].name: {"blocks": 0, "bytes": 0, "classes": {}},
    }
    assert found["namespaces"] == {ONE.hex(): 3, OTHER.hex(): 1}


def test_a_person_sees_eight_digits_of_a_namespace(cache: Run, place: Place) -> None:
    place.filled()
    shown = cache("stats").stdout
    assert "abababab   3" in shown
    assert ONE.hex()[:9] not in shown
    assert "core.disk" in shown
    assert "chat" in shown


def test_a_whole_store_is_verified_beside_the_process_that_writes(cache: Run, place: Place) -> None:
    place.filled()
    with place.written_elsewhere():
        found = data_of(cache("verify", "--json"))
        assert (found["checked"], found["outcomes"], found["damaged"]) == (4, {"hit": 4}, [])
        assert "4 hit" in cache("verify").stdout


def test_damage_is_reported_until_it_is_repaired(cache: Run, place: Place) -> None:
    place.filled()
    place.damage("other")
    shown = key("other").hex()[:8]
    for _ in range(2):
        found = data_of(cache("verify", "--json"), status=1)
        assert found["outcomes"] == {"hit": 3, "corrupt": 1}
        assert found["damaged"] == [
            {
                "group": "blocks",
                "key": shown,
                "status": "corrupt",
                "reason": "the block has changed",
            }
        ]
        assert found["repaired"] == 0
    done = cache("verify", "--repair")
    assert done.returncode == 0
    assert f"blocks {shown}: corrupt, the block has changed" in done.stdout
    assert "removed 1 that were damaged" in done.stdout
    assert data_of(cache("verify", "--json"))["outcomes"] == {"hit": 3}


def test_verifying_is_no_use_of_blocks(cache: Run, place: Place) -> None:
    place.filled()
    before = (place.folder / "data.mdb").read_bytes()
    cache("verify")
    cache("stats")
    cache("purge", "--all")
    assert (place.folder / "data.mdb").read_bytes() == before


def test_gc_removes_what_has_expired_and_says_what_is_left(cache: Run, place: Place) -> None:
    # Of last use: agents are kept for 1.0e6 seconds behind it, chats for 2.0e6.
    place.filled(age_s=1.5e6)
    found = data_of(cache("gc", "--json"))
    assert (found["removed"], found["reasons"], found["records"]) == (3, {"expired": 3}, 1)
    assert "1 blocks are left" in cache("gc").stdout


@pytest.mark.parametrize(
    ("action", "options"),
    [("gc", ()), ("purge", ("--all", "--yes")), ("verify", ("--repair",))],
)
def test_nothing_is_changed_beside_the_process_that_writes(
    cache: Run, place: Place, action: str, options: tuple[str, ...]
) -> None:
    place.filled()
    place.damage("other")
    with place.written_elsewhere():
        done = cache(action, *options)
    assert done.returncode != 0
    assert "another process" in done.stderr
    assert "writes to" in done.stderr
    assert "end it" in done.stderr


def test_nothing_is_purged_without_a_yes(cache: Run, place: Place) -> None:
    place.filled()
    for options, count in (
        (("--all",), 4),
        (("--namespace", "ABABABAB"), 3),
    ):
        done = cache("purge", *options)
        assert done.returncode != 0
        assert f"remove {count} blocks" in done.stderr
    assert data_of(cache("stats", "--json"))["records"] == 4


def test_a_namespace_is_purged_and_others_stay(cache: Run, place: Place) -> None:
    place.filled()
    found = data_of(cache("purge", "--namespace", "abababab", "--yes", "--json"))
    assert (found["removed"], found["records"]) == (3, 1)
    assert data_of(cache("stats", "--json"))["namespaces"] == {OTHER.hex(): 1}


def test_everything_is_purged(cache: Run, place: Place) -> None:
    place.filled()
    assert "removed 4 blocks, 0 are left" in cache("purge", "--all", "--yes").stdout


def test_the_namespace_of_a_salt_is_that_of_the_engine(cache: Run, place: Place) -> None:
    loaded = load_settings(place.file, environ={})
    with LLM.from_settings(loaded) as llm:
        policy = llm.loaded.engine.batch.pages.policy
        chain = policy.chain("tenant")
        assert chain is not None
        namespace = chain.root
    assert policy.identity.layout == place.group.layout
    store = place.opened()
    store.store("blocks", [place.item("theirs", namespace)], deadline_s=FOREVER)
    store.close()
    assert data_of(cache("purge", "--salt", "tenant", "--yes", "--json"))["removed"] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("purge", "--namespace", "abc", "--yes"), "--namespace abc"),
        (("purge", "--namespace", "00000000", "--yes"), "that of 0 namespaces"),
        (("purge", "--salt", "nobody"), "no blocks of that salt"),
        (("purge", "--salt", "nobody", "--yes"), "no blocks of that salt"),
        (("purge", "--yes"), "one of the arguments"),
        (("purge", "--all", "--salt", "x"), "not allowed with"),
    ],
)
def test_what_makes_no_sense_is_refused(
    cache: Run, place: Place, options: tuple[str, ...], message: str
) -> None:
    place.filled()
    done = cache(*options)
    assert done.returncode == 2
    assert message in done.stderr


def test_what_one_process_keeps_for_itself_cannot_be_looked_at(
    deepinfer: Run, byte_checkpoint: Path
) -> None:
    named = (f"model.path={byte_checkpoint}", "components.kv_store.use=core.memory")
    options = [word for one in named for word in ("--set", one)]
    done = deepinfer("cache", "stats", *options, PLUGINS_AUTOLOAD="0")
    assert done.returncode != 0
    assert "in the memory of the process" in done.stderr


def tiers_of(place: Place, *disks: Path) -> None:
    """Memory in front of stores on a disk, in place of the one store."""
    head, _, _ = place.file.read_text().partition("[components.kv_store]")
    tiers = ['{ use = "core.memory" }'] + [
        f'{{ use = "core.disk", options = {{ folder = "{disk}", capacity_bytes = {CAPACITY} }} }}'
        for disk in disks
    ]
    place.file.write_text(
        head
        + f"""[components.kv_store]
use = "core.tiered"
options = {{ tiers = [{", ".join(tiers)}] }}
"""
    )


def test_of_several_tiers_that_last_one_must_be_named(
    cache: Run, place: Place, tmp_path: Path
) -> None:
    tiers_of(place, place.folder, tmp_path / "other")
    done = cache("stats")
    assert done.returncode != 0
    assert "core.disk and core.disk" in done.stderr


def test_without_a_store_there_is_nothing_to_look_after(deepinfer: Run) -> None:
    done = deepinfer("cache", "stats", PLUGINS_AUTOLOAD="0")
    assert done.returncode != 0
    assert "name no store" in done.stderr


def test_a_store_that_nobody_made_yet_is_no_empty_one(cache: Run, place: Place) -> None:
    done = cache("stats")
    assert done.returncode != 0
    assert "cannot be opened" in done.stderr
    place.folder.mkdir()
    done = cache("stats")
    assert done.returncode != 0
    assert "nothing was stored there yet" in done.stderr


def test_lost_children_are_named(cache: Run, place: Place) -> None:
    head, _, _ = place.file.read_text().partition("[components.kv_store]")
    children = [
        f'{{ use = "core.disk", options = {{ folder = "{place.folder / str(number)}",'
        " capacity_bytes = 4000000 } }"
        for number in range(12)
    ]
    place.file.write_text(
        head
        + f"""[components.kv_store]
use = "core.erasure"
options = {{ codec = "numpy", children = [{", ".join(children)}] }}
"""
    )
    assert cache("gc").stderr == ""
    shutil.rmtree(place.folder / "1")
    (place.folder / "1").write_text("a file")
    lost = f"child 1 (core.disk): the store cannot be opened: {place.folder / '1'} is a file"
    for action, status in (("verify", 1), ("gc", 0)):
        assert f"warning: {lost}" in cache(action).stderr
        assert str(data_of(cache(action, "--json"), status)["problem"]).startswith(lost)


@pytest.mark.parametrize(
    ("verb", "hint"),
    [
        (("stats",), "deepinfer cache stats --url http://HOST:PORT"),
        (("verify",), "the service checks each block"),
        (("verify", "--repair"), "the service checks each block"),
        (("gc",), "the service sweeps once a minute"),
        (("purge", "--all"), "end the service"),
        (("purge", "--all", "--yes"), "end the service"),
    ],
)
def test_each_verb_says_what_to_do_about_a_store_in_memory(
    deepinfer: Run, byte_checkpoint: Path, verb: tuple[str, ...], hint: str
) -> None:
    named = (f"model.path={byte_checkpoint}", "components.kv_store.use=core.memory")
    options = [word for one in named for word in ("--set", one)]
    done = deepinfer("cache", *verb, *options, PLUGINS_AUTOLOAD="0")
    assert done.returncode == 2
    assert "core.memory keeps blocks in the memory of the process" in done.stderr
    assert hint in done.stderr


def test_what_is_empty_says_why(cache: Run, place: Place) -> None:
    place.opened().close()
    found = data_of(cache("stats", "--json"))
    assert found["why"] == {
        "blocks": "nothing was stored, or all of it has gone",
        "group blocks": "the store holds nothing",
        f"group {place.groups[1].name}": (
            "a store that outlives processes is given no states; --url tells of those"
        ),
    }
    assert "blocks: nothing was stored, or all of it has gone" in cache("stats").stdout


def test_a_salt_without_blocks_says_why(cache: Run, place: Place) -> None:
    place.filled()
    done = cache("stats", "--salt", "nobody")
    assert done.returncode == 0
    assert "is the namespace of the salt, blocks 0" in done.stdout
    assert "salt: the store holds nothing in this namespace" in done.stdout
    assert data_of(cache("stats", "--json", "--salt", "nobody"))["salt"]["blocks"] == 0


METRICS = """\
deepinfer_build_info{model="m",version="1"} 1.0
deepinfer_component_info{component="core.memory",slot="kv_store"} 1.0
deepinfer_kv_store_usable 1.0
deepinfer_kv_store_fetched_blocks_total 23.0
"""


@contextmanager
def service(text: str, key: str = "") -> Iterator[str]:
    """Something that answers as a service does; its address."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_known = not key or self.headers["Authorization"] == f"Bearer {key}"
            self.send_response(200 if is_known and self.path == "/metrics" else 401)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_service_tells_about_a_store_in_its_memory(deepinfer: Run) -> None:
    with service(METRICS) as url:
        found = data_of(deepinfer("cache", "stats", "--url", url, "--json"))
        shown = deepinfer("cache", "stats", "--url", f"{url}/").stdout
    assert found["store"] == "core.memory"
    by_name = {one["figure"]: one for one in found["figures"]}
    assert (by_name["blocks that came"]["value"], by_name["blocks that came"]["why"]) == (23, "")
    assert by_name["input tokens: host"]["why"] == "no request has ended"
    assert "no request has ended" in shown


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (("-c", "service.toml"), "-c"),
        (("--set", "engine.seed=1"), "--set"),
        (("--salt", ""), "--salt"),
        (("-c", "service.toml", "--salt", "alice"), "-c and --salt"),
    ],
)
def test_what_only_a_look_into_the_store_can_answer_is_refused_of_a_service(
    deepinfer: Run, more: tuple[str, ...], named: str
) -> None:
    done = deepinfer("cache", "stats", "--url", "http://127.0.0.1:1", *more)
    assert done.returncode == 2
    assert f"found {named} beside it" in done.stderr
    assert "hint: leave out --url" in done.stderr


def test_a_service_that_wants_a_key_gets_it(deepinfer: Run, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("secret\nmore\n")
    with service(METRICS, key="secret") as url:
        assert deepinfer("cache", "stats", "--url", url, "--key-file", str(file)).returncode == 0
        done = deepinfer("cache", "stats", "--url", url)
    assert done.returncode == 2
    assert "wants a key, found none" in done.stderr
    assert "--key-file" in done.stderr


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("localhost:8000", "give that of the service: http://HOST:PORT"),
        ("", "give that of the service: http://HOST:PORT"),
        ("http://127.0.0.1:1", "found nobody: Connection refused"),
    ],
)
def test_an_address_that_is_none_is_an_error(deepinfer: Run, url: str, message: str) -> None:
    done = deepinfer("cache", "stats", "--url", url)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_text_that_is_no_metrics_is_an_error(deepinfer: Run) -> None:
    with service("hello") as url:
        done = deepinfer("cache", "stats", "--url", url)
    assert done.returncode == 1
    assert "found other text" in done.stderr
