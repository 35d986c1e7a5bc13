"""How does the engine speculate: what is fed, verified, drafted, planned and learned?

``host`` and ``state`` are the step loop's side, the other modules the device's.
"""
