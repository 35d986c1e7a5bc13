"""A sampler of another vendor."""
