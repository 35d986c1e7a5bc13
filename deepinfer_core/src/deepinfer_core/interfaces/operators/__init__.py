"""Which variants of an operator may a backend be asked to compile?

One frozen ``Spec`` an operator: widths, formats and constants that a kernel may be compiled for.
Row counts are never part of it. The kernels of all backends take the same specs; what else a kernel
depends on (tiles, threads, architecture) is its backend's ``Tuning``.
"""
