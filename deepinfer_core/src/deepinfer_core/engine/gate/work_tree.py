"""Is every change in the checkout committed, so that a new baseline belongs to a known program?"""

from __future__ import annotations

import subprocess
from pathlib import Path

from deepinfer_core.errors import ConfigError

__all__ = ["clean_commit"]


def clean_commit(folder: Path) -> str:
    """The commit that a folder's work tree is at.

    Args:
        folder: an existing one.

    Returns:
        The full name of the commit; empty outside a checkout.

    Raises:
        ConfigError: files are changed or untracked, there is no commit yet, or git does not run.
    """
    top = folder.resolve()
    if not any((parent / ".git").exists() for parent in (top, *top.parents)):
        return ""
    changed = _git(folder, "status", "--porcelain").splitlines()
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise ConfigError(
            f"the work tree of {folder} is dirty: {changed[0].strip()}{more}",
            hint="commit first, so that the baseline belongs to a commit",
        )
    return _git(folder, "rev-parse", "HEAD").strip()


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
        )
    except FileNotFoundError as error:
        raise ConfigError(
            f"{folder} is in a checkout, but there is no git to ask whether it is clean",
            hint="install git",
        ) from error
    except subprocess.CalledProcessError as error:
        raise ConfigError(
            f"git {arguments[0]} failed in {folder}: {' '.join(error.stderr.split())}",
            hint="git status says more",
        ) from error
    return done.stdout
