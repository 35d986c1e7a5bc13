"""How does a process of its own move blocks between a store and an engine?

``engine_end`` is the engine's side, ``child`` the process. What they say to each other is in
``messages``, and what they share in ``segment``. Who gets which slot, what is loaded next and what
becomes of a failure is decided in parts that know neither threads nor processes.
"""
