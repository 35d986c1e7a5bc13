"""Which code trained the tiny checkpoint? This folder, run from the repository, never installed."""
