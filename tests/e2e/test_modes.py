"""Modes of stepping and reuse on the CPU; ``testing.sweeps.modes`` has the requests."""

from deepinfer_core.testing.sweeps import ModesSweep


class TestModes(ModesSweep):
    """On the components of the reference."""
