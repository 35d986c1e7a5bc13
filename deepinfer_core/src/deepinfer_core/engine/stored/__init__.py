"""Which blocks does an engine take from a store, and which does it give one?

What comes from a store joins the blocks that are cached in memory, and is found there like any
other; so a sequence has one way to start. ``exchange`` is what the engine knows of all this.
"""

__all__: list[str] = []
