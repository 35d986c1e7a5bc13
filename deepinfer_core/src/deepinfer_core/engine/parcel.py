"""How do many small arrays reach the device in one copy?

They are packed into one buffer on the host, which costs the caller's time; the copy is made, and
the parts are handed out, by work on the device's stream.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from deepinfer_core.interfaces.device import Device

__all__ = ["Parcel"]

_WORD_BYTES = 8

_DTYPES = {"i8": torch.int64, "i4": torch.int32, "f4": torch.float32}


class Parcel:
    """Arrays of 32-bit or 64-bit numbers on their way.

    Args:
        arrays: int64, int32 or float32, of any shapes.
        device: where they go.
    """

    def __init__(self, arrays: Sequence[np.ndarray], device: Device) -> None:
        self._device = device
        self._parts = [(array.dtype.str[1:], array.shape) for array in arrays]
        words = [_words(array) for array in arrays]
        self._sizes = [word.size for word in words]
        self._buffer = device.host_buffer((sum(self._sizes),), torch.int64)
        np.concatenate(words, out=self._buffer.numpy())

    def move(self) -> torch.Tensor:
        """All of it on the device, as int64 words; called by work on a stream, once."""
        return self._buffer.to(self._device.torch_device, non_blocking=True)

    def split(self, words: torch.Tensor) -> list[torch.Tensor]:
        """The arrays, as views of words that came from ``move`` of this or an equal parcel."""
        parts = words.split_with_sizes(self._sizes)
        return [_typed(part, *form) for part, form in zip(parts, self._parts, strict=True)]

    def arrive(self) -> list[torch.Tensor]:
        """The arrays on the device; called by work on a stream, once."""
        return self.split(self.move())


def _words(array: np.ndarray) -> np.ndarray:
    """The bytes of an array as whole words, flat."""
    if array.dtype == np.int64:
        return array.reshape(-1)
    words = np.zeros(-(-array.nbytes // _WORD_BYTES), dtype=np.int64)
    words.view(np.uint8)[: array.nbytes] = array.reshape(-1).view(np.uint8)
    return words


def _typed(part: torch.Tensor, code: str, shape: tuple[int, ...]) -> torch.Tensor:
    if code != "i8":
        count = int(np.prod(shape))
        part = part.view(_DTYPES[code])[:count]
    return part if len(shape) == 1 else part.view(shape)
