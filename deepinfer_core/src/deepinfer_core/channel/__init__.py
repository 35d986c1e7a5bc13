"""How do two processes of one service speak?

Over a pair of connected sockets, in frames that hold one typed message each. ``language`` says what
may be said and packs it, ``frames`` finds the messages in the stream, ``thread_end`` is the end of
a process that works in threads, ``loop_end`` that of one which runs an event loop. ``restarts``
says when one that died is started again.

Nothing here knows what the messages are about.
"""
