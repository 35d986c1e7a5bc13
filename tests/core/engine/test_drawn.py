"""Do the sampler's outputs come to the host in one piece, and each to its row?"""

import pytest
import torch
from deepinfer_core.engine.drawn import Drawn
from deepinfer_core.engine.rows import RowRequest, RowSettings
from deepinfer_core.interfaces.sampler import SamplerOutputs
from deepinfer_core.reference.device import CpuDevice


class Apart(CpuDevice):
    """A CPU whose host buffers are counted."""

    def __init__(self) -> None:
        self.buffers: list[torch.Tensor] = []

    def host_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        self.buffers.append(super().host_buffer(shape, dtype))
        return self.buffers[-1]


def fill(out: SamplerOutputs) -> None:
    rows, alternatives = out.top_token_RA.shape
    out.token_R.copy_(torch.arange(rows) + (1 << 40))
    out.logprob_R.copy_(-torch.arange(rows) / 4)
    out.processed_logprob_R.copy_(-torch.arange(rows) / 8)
    out.top_token_RA.copy_(torch.arange(rows * alternatives).view(rows, alternatives))
    out.top_logprob_RA.copy_(-torch.arange(rows * alternatives).view(rows, alternatives) / 2)
    out.invalid_R.copy_(torch.arange(rows) % 2 == 1)


def asked(rows: int, alternatives: int) -> tuple[RowRequest, ...]:
    settings = [RowSettings(seed=1, alternatives=row % (alternatives + 1)) for row in range(rows)]
    return tuple(RowRequest(row, 4, settings[row]) for row in range(rows))


@pytest.mark.parametrize("rows", [1, 2, 3, 8])
@pytest.mark.parametrize("alternatives", [0, 1, 3])
def test_each_row_gets_its_own_outputs(rows: int, alternatives: int) -> None:
    drawn = Drawn(rows, alternatives, CpuDevice())
    fill(drawn.out)
    drawn.send()
    results = drawn.results(asked(rows, alternatives))
    assert [one.token_id for one in results] == [row + (1 << 40) for row in range(rows)]
    assert [one.logprob for one in results] == [-row / 4 for row in range(rows)]
    assert [one.processed_logprob for one in results] == [-row / 8 for row in range(rows)]
    assert [one.invalid for one in results] == [row % 2 == 1 for row in range(rows)]
    for row, one in enumerate(results):
        first = row * alternatives
        wanted = [(first + n, -(first + n) / 2) for n in range(row % (alternatives + 1))]
        assert list(one.top) == wanted


def test_where_the_host_is_the_device_nothing_is_copied() -> None:
    device = Apart()
    drawn = Drawn(2, 0, device)
    drawn.send()
    assert device.buffers == []


def test_elsewhere_all_outputs_come_in_one_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Apart()
    monkeypatch.setattr(Apart, "torch_device", torch.device("meta"))
    drawn = Drawn(3, 2, device)
    with pytest.raises(NotImplementedError, match="no data"):
        drawn.send()  # the numbers of that device do not exist
    [buffer] = device.buffers
    assert buffer.nbytes == 3 * (8 + 4 + 4 + 1) + 3 * 2 * (8 + 4)
