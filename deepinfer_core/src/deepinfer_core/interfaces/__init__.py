"""The contracts between the core and everything that does the work: which operators exist?

Each module describes one component kind. Nothing here imports torch at run time.
"""
