"""What does each operator do on an NVIDIA GPU? One operator a file, in TileLang's CUDA dialect.

A file has ``build(spec, tuning) -> PrimFunc`` and, if it has choices, its ``Tuning``. File names,
``build`` and the names of a kernel's arguments are the same in every backend; the algorithm is
described at the twin in ``deepinfer_core.reference``. ``launch`` compiles and calls them. Nothing
outside this folder imports ``tilelang``.
"""
