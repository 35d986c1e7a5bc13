"""Chunks of every size on the CPU; ``testing.sweeps.chunk_sizes`` has the requests."""

from deepinfer_core.testing.sweeps import ChunkSizesSweep


class TestChunkSizes(ChunkSizesSweep):
    """On the components of the reference."""
