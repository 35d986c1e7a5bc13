"""How does C learn the dtype of a tensor?"""

import torch

from deepinfer_core.errors import NotSupported

__all__ = ["TYPE_CODES", "type_code"]

TYPE_CODES = {torch.bfloat16: 0, torch.float32: 1}
"""``DI_BF16`` and ``DI_F32`` of ``common.h``."""


def type_code(dtype: torch.dtype) -> int:
    """The code of a dtype.

    Raises:
        NotSupported: the kernels do not read or write this dtype.
    """
    code = TYPE_CODES.get(dtype)
    if code is None:
        raise NotSupported(
            f"asked for compiled kernels on {dtype}, found bfloat16 and float32",
            hint="core.reference computes in every dtype",
        )
    return code
