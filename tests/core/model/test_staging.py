"""Do numbers of the host arrive as they are?"""

from collections.abc import Sequence

import pytest
import torch
from deepinfer_core.model.staging import staged
from deepinfer_core.testing.host_waits import no_host_waits


@pytest.mark.parametrize("numbers", [[3, -1, 1 << 40], [], [[1, 2], [3, 4]]])
def test_numbers_arrive_as_int64(numbers: Sequence[int]) -> None:
    arrived = staged(numbers, torch.device("cpu"))
    assert arrived.dtype == torch.int64
    assert arrived.tolist() == numbers


def test_nobody_waits_for_their_arrival() -> None:
    with no_host_waits():
        assert staged([1, 2, 3], torch.device("meta")).device.type == "meta"
