"""Can Mooncake's client run here? It is looked for, not loaded; whose pool it is, nobody says."""

from __future__ import annotations

import ctypes
from importlib.util import find_spec

from deepinfer_core.plugin import ProbeContext, Verdict

__all__ = ["LIBRARIES", "mooncake"]

LIBRARIES = {
    "libibverbs.so.1": "libibverbs1",
    "librdmacm.so.1": "librdmacm1",
    "libnuma.so.1": "libnuma1",
}
"""Shared libraries that the client is linked with, whatever it transfers by, and the Debian
packages that have them."""

_SCORE = -1
"""Below ``core.memory``: ``auto`` names no master."""

_BUILD = "mooncake-transfer-engine"
"""Its distributions are called that, most with what they were built for behind it."""


def mooncake(context: ProbeContext) -> Verdict:
    """Say what is missing: the package, or libraries that it is linked with."""
    if find_spec("mooncake") is None:
        return Verdict(
            False,
            reason="needs the package mooncake",
            fix='pip install "./plugins/deepinfer_cluster[mooncake]"',
        )
    missing = [name for name in LIBRARIES if not _is_loadable(name)]
    if missing:
        packages = " ".join(LIBRARIES[name] for name in missing)
        return Verdict(
            False,
            reason=f"needs the shared {'library' if len(missing) == 1 else 'libraries'} "
            + ", ".join(missing),
            fix=f"apt-get install {packages}",
        )
    builds = [f"{name} {found}" for name, found in context.versions.items() if _BUILD in name]
    return Verdict(True, score=_SCORE, reason=", ".join(builds) or "Mooncake")


def _is_loadable(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
