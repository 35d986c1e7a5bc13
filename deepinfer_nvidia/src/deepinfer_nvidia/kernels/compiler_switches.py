"""Which passes of the compiler do kernels switch off, and what must they see to themselves then?"""

__all__ = ["NO_BOUNDS_CHECKS", "NO_WARP_SPLIT", "OWN_BARRIERS"]

NO_BOUNDS_CHECKS = (("tl.disable_safe_memory_legalize", True),)
"""Every index of the kernel is in range by itself; checks would break up copies of 16 bytes."""

OWN_BARRIERS = (
    *NO_BOUNDS_CHECKS,
    ("tl.disable_thread_storage_sync", True),
    ("tl.disable_shared_memory_reuse", True),
)
"""The kernel checks indices and synchronises on its own.

Buffers in shared memory must then have places of their own: the compiler takes a buffer for free
after its last use in the order of statements, which is not yet the end of other threads' use. So
parts of kernels that run several times get the same buffers from the kernel.
"""

NO_WARP_SPLIT = (("tl.disable_warp_specialized", True),)
"""Warps that copy and warps that multiply stay one."""
