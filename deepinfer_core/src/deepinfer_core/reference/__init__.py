"""What does every operator of the core's interfaces compute? The answer in plain torch on a CPU.

Slow, obvious and exact about the promises: other implementations are compared with these, and the
contract suites in ``deepinfer_core.testing.contracts`` compare these with fp64 formulas.
"""
