"""How does an engine work in a process of its own?

``messages`` is what it and the process in front of it say to each other, ``requests`` and
``faults`` how requests and errors pass between them. ``child`` is the program, ``serving`` its
loop, ``outbox`` what a step sends, ``opening`` how it loads. The first three know no torch.
"""
