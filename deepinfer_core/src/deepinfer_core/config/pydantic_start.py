"""How does pydantic start where the metadata of some distribution is damaged?

With its first schema pydantic looks for plugins of its own among everything that is installed, and
fails on entry points that cannot be read, whoever they belong to. It looks once: the next schema
is made without such plugins. So one schema is spent on that look before the settings are made.
"""

import contextlib

from pydantic import create_model

__all__ = ["start_pydantic"]


def start_pydantic() -> None:
    """Let pydantic look for its plugins, and go on without them if it cannot.

    Whose entry points are damaged is for ``deepinfer plugins`` to say, not for an import to fail.
    """
    with contextlib.suppress(Exception):
        create_model("FirstSchema")
