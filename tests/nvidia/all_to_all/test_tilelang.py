"""Do kernels bring rows to their experts and back with the bits of the reference?"""

from typing import Any, ClassVar

import pytest
import torch
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.all_to_all import AllToAll, ExchangeSpec
from deepinfer_core.interfaces.operators.catalogue import Build, Kernels
from deepinfer_core.reference.all_to_all import LocalExchange
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.all_to_all import AllToAllContract
from deepinfer_core.testing.seeds import seed_of
from deepinfer_core.testing.tiles import InterpretedKernels
from deepinfer_nvidia.all_to_all.tilelang import TileLangExchange

KERNELS = InterpretedKernels()


class TestTileLangExchange(AllToAllContract):
    """The contract, without fp64 and alignment, which no kernel knows."""

    compute_dtypes: ClassVar[tuple[str, ...]] = ("bfloat16", "float32")
    alignments: ClassVar[tuple[int, ...]] = (1,)

    @pytest.fixture
    def component(self) -> AllToAll:
        return TileLangExchange(KERNELS)


def spec(**changes: Any) -> ExchangeSpec:
    sizes: dict[str, Any] = {"experts": 9, "experts_per_row": 3, "width": 40}
    return ExchangeSpec(**{**sizes, "compute": "bfloat16", **changes})


@pytest.mark.parametrize("absent", [0.0, 0.4])
def test_rows_come_and_go_with_the_bits_of_the_reference(
    absent: float, request: pytest.FixtureRequest
) -> None:
    generator = torch.Generator().manual_seed(seed_of(request))
    x_TD = torch.randn(11, 40, generator=generator).bfloat16()
    expert_Tk = torch.rand(11, 9, generator=generator).argsort(1)[:, :3]
    expert_Tk = expert_Tk.masked_fill(torch.rand(11, 3, generator=generator) < absent, -1)
    weight_Tk = torch.rand(11, 3, generator=generator).masked_fill(expert_Tk < 0, 0)
    y_RD = torch.randn(33, 40, generator=generator)
    found = []
    for component in (TileLangExchange(KERNELS), LocalExchange()):
        plan, out_TD = component.plan(spec(), 11), torch.empty(11, 40)
        sent = component.dispatch(plan, x_TD, expert_Tk, weight_Tk)
        component.combine(plan, y_RD, sent, out_TD)
        end = int(sent.ends_E[-1])
        found.append((sent.x_RD[:end], sent.weight_R, sent.ends_E, sent.handle, out_TD))
    for got, want in zip(*found, strict=True):
        assert_same_bits(got, want)


@pytest.mark.parametrize("changes", [{"experts": 0}, {"experts_per_row": 0}, {"row_alignment": 4}])
def test_what_no_kernel_was_written_for_is_refused(changes: dict[str, int]) -> None:
    with pytest.raises(NotSupported, match="found kernels for at least 1"):
        TileLangExchange(KERNELS).plan(spec(**changes), 1)


class CountingKernels(Kernels):
    """Remembers how many threads a block had."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def call(self, build: Build, spec: Any, tuning: Any, /, **tensors: torch.Tensor) -> None:
        self.threads.append(tuning.threads)


@pytest.mark.parametrize(("rows", "threads"), [(1, 64), (682, 64), (683, 256)])
def test_many_choices_are_ordered_by_larger_blocks(rows: int, threads: int) -> None:
    kernels = CountingKernels()
    component = TileLangExchange(kernels)
    expert_Tk = torch.zeros(rows, 3, dtype=torch.int64)
    x_TD, weight_Tk = torch.zeros(rows, 40).bfloat16(), torch.zeros(rows, 3)
    component.dispatch(component.plan(spec(), rows), x_TD, expert_Tk, weight_Tk)
    assert kernels.threads[0] == threads
