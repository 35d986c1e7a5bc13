"""Which kernels are written in CUDA C++ for Hopper, because TileLang does not reach their target?

A file here computes what the file of the same name one folder up computes in TileLang; weights may
have another layout. The TileLang version is the one that is interpreted, and that other
architectures run.
"""
