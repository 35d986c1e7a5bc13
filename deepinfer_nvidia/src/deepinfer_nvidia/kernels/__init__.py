"""Which operators have a kernel? One file each, ``<family>_<operator>.py``, with one ``build``.

``tilelang`` is imported here and nowhere else in this distribution. Builders are pure: everything
that a kernel depends on stands in its ``Spec`` and in the tuning tables beside it, one a target.
"""

__all__: list[str] = []
