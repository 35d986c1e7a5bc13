"""How many calls each operation gets."""

from hypothesis import settings

settings.register_profile("short", max_examples=20)
settings.register_profile("full", max_examples=500)
settings.load_profile("short")
