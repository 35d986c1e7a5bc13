"""How is a pool of Mooncake started, and its parts killed? ``nox -s mooncake``.

Master and nodes are child processes on the loopback device; they end with the test.
"""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deepinfer_cluster.admin import HttpAdmin, NotTold
from deepinfer_cluster.component import build
from deepinfer_cluster.options import MooncakeOptions
from deepinfer_cluster.probe import mooncake
from deepinfer_cluster.store import MooncakeStore
from deepinfer_core.plugin import BuildContext, DeviceFacts, ModelNeeds, ProbeContext

LOOPBACK = "127.0.0.1"
CLIENT_TTL_S = 4
ENDING_WITH_PARENT = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
os.execv(sys.argv[1], sys.argv[1:])
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what Mooncake is missing for, and say what that is."""
    context = ProbeContext(device=DeviceFacts(device="cpu"), needs=ModelNeeds(), versions={})
    verdict = mooncake(context)
    if not verdict.usable:
        for item in items:
            item.add_marker(pytest.mark.skip(reason=f"{verdict.reason}: {verdict.fix}"))


def free_port() -> int:
    with socket.socket() as one:
        one.bind((LOOPBACK, 0))
        return int(one.getsockname()[1])


def program(name: str) -> str:
    """A program that the package brings."""
    spec = importlib.util.find_spec("mooncake")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / name)


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.02)


class Pool:
    """A master and nodes.

    Args:
        folder: for what they log.
        nodes: how many.
        node_bytes: memory of each.
    """

    def __init__(self, folder: Path, *, nodes: int = 3, node_bytes: int = 64 << 20) -> None:
        self._folder, self._node_bytes = folder, node_bytes
        self._rpc, self._admin, self._unused = free_port(), free_port(), free_port()
        self.master_address = f"{LOOPBACK}:{self._rpc}"
        self.admin_url = f"http://{LOOPBACK}:{self._admin}"
        self.admin = HttpAdmin(self.admin_url, self.master_address)
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.start_master()
        for _ in range(nodes):
            self.start_node()
        until(lambda: self.admin.figures().capacity_bytes == nodes * node_bytes)

    def start_master(self) -> None:
        self.master = self._start(
            "mooncake_master",
            f"--rpc_address={LOOPBACK}",
            f"--rpc_port={self._rpc}",
            f"--metrics_host={LOOPBACK}",
            f"--metrics_port={self._admin}",
            f"--client_ttl={CLIENT_TTL_S}",
            "--default_kv_lease_ttl=2s",
        )
        until(self._answers)

    def start_node(self) -> None:
        node = self._start(
            "mooncake_client",
            f"--host={LOOPBACK}",
            f"--port={free_port()}",
            "--metadata_server=P2PHANDSHAKE",
            f"--master_server_address={self.master_address}",
            f"--global_segment_size={self._node_bytes}",
        )
        self.nodes.append(node)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        os.kill(process.pid, signal.SIGSTOP)

    def resume(self, process: subprocess.Popen[bytes]) -> None:
        os.kill(process.pid, signal.SIGCONT)

    def store(self, **options: Any) -> MooncakeStore:
        """A store in this pool, built as an engine builds it."""
        needed = {"master": self.master_address, "admin_url": self.admin_url}
        found = MooncakeOptions(**{**needed, "pool": f"t{uuid.uuid4().hex[:8]}", **options})
        return build(found, BuildContext(device="cpu", needs=ModelNeeds()))

    def close(self) -> None:
        for process in [*self.nodes, self.master]:
            if process.poll() is None:
                self.resume(process)
                self.kill(process)

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", ENDING_WITH_PARENT, program(name), *arguments],
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )

    def _answers(self) -> bool:
        assert self.master.poll() is None, "the master ended"
        try:
            self.admin.figures()
        except NotTold:
            return False
        return True


@pytest.fixture
def new_pool(tmp_path: Path) -> Iterator[Callable[..., Pool]]:
    """Starts pools, and ends them behind the test."""
    pools: list[Pool] = []

    def start(**sizes: int) -> Pool:
        pools.append(Pool(tmp_path, **sizes))
        return pools[-1]

    yield start
    for pool in pools:
        pool.close()


@pytest.fixture(scope="module")
def shared_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """One for all tests of a file, which break nothing."""
    pool = Pool(tmp_path_factory.mktemp("pool"), nodes=2)
    yield pool
    pool.close()
