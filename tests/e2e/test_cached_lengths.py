"""Cold equals cached on the CPU; ``testing.sweeps.cached_lengths`` has the requests."""

from deepinfer_core.testing.sweeps import CachedLengthsSweep


class TestCachedLengths(CachedLengthsSweep):
    """On the components of the reference."""
