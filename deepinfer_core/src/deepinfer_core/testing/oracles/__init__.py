"""What is the exact answer? Formulas in fp64, written without a look at any implementation.

Loops and dense matrices; no tiling, no caches, no formats. Number formats are the business of
``deepinfer_core.numeric`` and its own tests.
"""
