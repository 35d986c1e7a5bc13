"""How is a pool of Mooncake started on this machine, and how do parts of it end?

Master and nodes are child processes on the loopback device; they end with the process that started
them.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from deepinfer_core.errors import ConfigError
from deepinfer_core.plugin import BuildContext, ModelNeeds

from deepinfer_cluster.admin import HttpAdmin, NotTold
from deepinfer_cluster.component import build
from deepinfer_cluster.options import MooncakeOptions
from deepinfer_cluster.store import MooncakeStore

__all__ = ["CLIENT_TTL_S", "LOOPBACK", "RealPool", "free_port", "until"]

LOOPBACK = "127.0.0.1"
CLIENT_TTL_S = 4
"""After so long a master gives a node up."""

_ENDING_WITH_PARENT = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
os.execv(sys.argv[1], sys.argv[1:])
"""


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as one:
        one.bind((LOOPBACK, 0))
        return int(one.getsockname()[1])


def _program(name: str) -> str:
    """A program that the package brings."""
    spec = find_spec("mooncake")
    if spec is None or spec.origin is None:
        raise ConfigError("asked for a pool, found no package mooncake", hint="install it")
    return str(Path(spec.origin).parent / name)


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for something that happens elsewhere.

    Raises:
        TimeoutError: it did not.
    """
    end_s = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= end_s:
            raise TimeoutError(f"not within {seconds} s")
        time.sleep(0.02)


class RealPool:
    """A master and nodes.

    Args:
        folder: for what they log.
        nodes: how many.
        node_bytes: memory of each.
    """

    def __init__(self, folder: Path, *, nodes: int = 3, node_bytes: int = 64 << 20) -> None:
        self._folder, self._node_bytes = folder, node_bytes
        self._rpc, self._admin = free_port(), free_port()
        self.master_address = f"{LOOPBACK}:{self._rpc}"
        self.admin_url = f"http://{LOOPBACK}:{self._admin}"
        self.admin = HttpAdmin(self.admin_url, self.master_address)
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.start_master()
        for _ in range(nodes):
            self.start_node()
        until(lambda: self.admin.figures().capacity_bytes == nodes * node_bytes)

    def start_master(self) -> None:
        """Start a master, at the same address as the one before."""
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
        """Start one more node."""
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
        """End a process as a crash does."""
        process.kill()
        process.wait()

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """Let a process hang."""
        os.kill(process.pid, signal.SIGSTOP)

    def resume(self, process: subprocess.Popen[bytes]) -> None:
        """Let it go on."""
        os.kill(process.pid, signal.SIGCONT)

    def store(self, **options: Any) -> MooncakeStore:
        """A store in this pool, built as an engine builds it."""
        needed = {"master": self.master_address, "admin_url": self.admin_url}
        found = MooncakeOptions(**{**needed, "pool": f"t{uuid.uuid4().hex[:8]}", **options})
        return build(found, BuildContext(device="cpu", needs=ModelNeeds()))

    def close(self) -> None:
        """End everything."""
        for process in [*self.nodes, self.master]:
            if process.poll() is None:
                self.resume(process)
                self.kill(process)

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", _ENDING_WITH_PARENT, _program(name), *arguments],
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )

    def _answers(self) -> bool:
        if self.master.poll() is not None:
            raise ConfigError(
                f"asked for a master, found that it ended with {self.master.returncode}",
                hint=f"read {self._folder}/mooncake_master.log",
            )
        try:
            self.admin.figures()
        except NotTold:
            return False
        return True
