"""Where do keys live between steps? Layout of blocks and state slots, memory, block pool."""
