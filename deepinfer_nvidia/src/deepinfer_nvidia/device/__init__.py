"""How does the engine use one NVIDIA GPU? ``cuda`` is the device, ``streams`` its order of work."""

__all__: list[str] = []
