"""Where do keys live between steps? Layout of blocks and state slots, their memory, and the pool."""
