"""What runs DeepInfer on NVIDIA GPUs? See ``plugin`` for the list; nothing is imported here."""

__all__: list[str] = []
