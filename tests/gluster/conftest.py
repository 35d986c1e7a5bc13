"""How does a GlusterFS volume of ten and two bricks come to be for a test, and lose some of them?

Twelve servers of bricks on this machine, one management daemon, and two mounts of the volume, which
know nothing of each other, as on two machines. All of it in a network and a mount namespace of its
own, where the daemon's folders are empty ones: nothing of the machine is touched.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

HOST = "10.77.0.1"
"""Bricks may not have a loopback address; this one is added to the loopback device."""

BRICKS = 12
OWN_FOLDERS = ("/var/lib/glusterd", "/var/run/gluster", "/var/log/glusterfs")
OPTIONS = {
    "performance.io-cache": "off",
    "performance.quick-read": "off",
    "performance.read-ahead": "off",
    "performance.open-behind": "off",
    "performance.stat-prefetch": "off",
}
"""What is read comes from bricks, not from memory."""


def run(*command: str, limit_s: float = 180.0) -> str:
    """Run a command; its output."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout


def until(condition: Callable[[], bool], limit_s: float = 120.0) -> None:
    """Wait until something has come about."""
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, "it did not come about"
        time.sleep(0.2)


class Volume:
    """A dispersed volume, 10 + 2."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.mounts = [folder / "mount0", folder / "mount1"]

    def start(self) -> None:
        """From the daemon to the mounts."""
        run("ip", "link", "set", "lo", "up")
        run("ip", "address", "add", f"{HOST}/24", "dev", "lo")
        for own in OWN_FOLDERS:
            os.makedirs(own, exist_ok=True)
            run("mount", "-t", "tmpfs", "tmpfs", own)
        run("glusterd", "-p", str(self._folder / "glusterd.pid"))
        until(
            lambda: (
                subprocess.run(("gluster", "peer", "status"), capture_output=True).returncode == 0
            )
        )
        bricks = []
        for number in range(BRICKS):
            (self._folder / f"brick{number}").mkdir()
            bricks.append(f"{HOST}:{self._folder}/brick{number}")
        gluster("volume", "create", "kv", "disperse", "12", "redundancy", "2", *bricks, "force")
        for name, value in OPTIONS.items():
            gluster("volume", "set", "kv", name, value)
        gluster("volume", "start", "kv")
        self.restore()
        for mount in self.mounts:
            mount.mkdir()
            options = "direct-io-mode=enable,attribute-timeout=0,entry-timeout=0"
            run("mount", "-t", "glusterfs", "-o", options, f"{HOST}:/kv", str(mount))

    def servers(self) -> dict[int, int]:
        """Process of each brick that is served."""
        status = ElementTree.fromstring(gluster("volume", "status", "kv", "--xml"))
        found = {}
        for node in status.iter("node"):
            path = node.findtext("path") or ""
            if "/brick" in path and node.findtext("status") == "1":
                found[int(path.rpartition("brick")[2])] = int(node.findtext("pid") or 0)
        return found

    def kill(self, *bricks: int) -> None:
        """End servers of bricks, at once."""
        servers = self.servers()
        for brick in bricks:
            os.kill(servers[brick], signal.SIGKILL)
        until(lambda: not set(bricks) & self.servers().keys())

    def restore(self) -> None:
        """Serve all bricks again."""
        for _ in range(10):
            if len(self.servers()) == BRICKS:
                return
            gluster("volume", "start", "kv", "force")
            with contextlib.suppress(
                AssertionError
            ):  # a server that comes up while it is asked for
                until(lambda: len(self.servers()) == BRICKS, limit_s=20.0)
        assert len(self.servers()) == BRICKS, "not all bricks are served"

    def healed(self) -> bool:
        """Whether every brick has what the others have; asks for it."""
        with contextlib.suppress(AssertionError):  # refused while one is under way
            gluster("volume", "heal", "kv")
        lines = gluster("volume", "heal", "kv", "info").splitlines()
        counts = [line for line in lines if line.startswith("Number of entries:")]
        return counts == ["Number of entries: 0"] * BRICKS

    def seen(self) -> bool:
        """Whether both mounts have reached every brick; they look for lost ones every 3 s."""
        clients = [
            mount / ".meta/graphs/active" / f"kv-client-{brick}" / "private"
            for mount in self.mounts
            for brick in range(BRICKS)
        ]
        with contextlib.suppress(OSError):
            return all("connected = 1" in client.read_text() for client in clients)
        return False

    def stop(self) -> None:
        """End all processes; the namespaces go with the last of them."""
        for mount in self.mounts:
            subprocess.run(("umount", "-l", str(mount)), capture_output=True, check=False)
        subprocess.run(
            ("gluster", "--mode=script", "volume", "stop", "kv", "force"),
            capture_output=True,
            timeout=60,
            check=False,
        )
        pid = self._folder / "glusterd.pid"
        if pid.exists():
            os.kill(int(pid.read_text()), signal.SIGTERM)


def gluster(*command: str) -> str:
    """Ask the management daemon."""
    return run("gluster", "--mode=script", *command)


def is_private() -> bool:
    """Whether this process has namespaces that its parent has not."""
    return all(
        os.readlink(f"/proc/self/ns/{one}") != os.readlink(f"/proc/{os.getppid()}/ns/{one}")
        for one in ("net", "mnt")
    )


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Volume]:
    """The volume, for all tests."""
    if not is_private() or shutil.which("glusterd") is None:
        pytest.skip("needs GlusterFS and namespaces of its own: nox -s gluster, as root")
    made = Volume(tmp_path_factory.mktemp("gluster"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def volume(whole: Volume) -> Volume:
    """The same, all bricks served, reached from both mounts, and alike."""
    whole.restore()
    until(whole.seen)
    until(whole.healed, limit_s=300.0)
    return whole
