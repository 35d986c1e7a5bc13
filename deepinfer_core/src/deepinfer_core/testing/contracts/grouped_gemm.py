"""Does each row meet the weight of its expert, and nothing else?

Shapes: R rows, K input width, N output width, E experts.
"""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch

from deepinfer_core.interfaces.gemm import GroupedGemm, GroupedSpec
from deepinfer_core.numeric import QuantTensor, fake_quantise, quantise
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.suite import (
    ContractSuite,
    accumulation,
    assert_rows_stand_alone,
    dtype_of,
)
from deepinfer_core.testing.tolerance import assert_within, roundoff

__all__ = ["GroupedGemmContract"]


class GroupedGemmContract(ContractSuite):
    """Tests of ``GroupedGemm``.

    Attributes:
        expert_formats: formats that ``prepare_experts`` takes.
        activation_formats: formats that inputs are rounded to.
    """

    expert_formats: ClassVar[tuple[str, ...]] = ("mxfp4", "fp8_32x32", "bfloat16")
    activation_formats: ClassVar[tuple[str, ...]] = ("mxfp8",)
    sweeps: ClassVar[dict[str, str]] = {
        **ContractSuite.sweeps,
        "expert_format": "expert_formats",
        "activation_format": "activation_formats",
    }

    def experts(self, values_ENK: torch.Tensor, expert_format: str) -> QuantTensor:
        """Quantise on the CPU, then move."""
        stored = quantise(values_ENK, expert_format)
        scale = None if stored.scale is None else stored.scale.to(self.device)
        return QuantTensor(data=stored.data.to(self.device), scale=scale, format=expert_format)

    def multiply(
        self,
        component: GroupedGemm,
        x_RK: torch.Tensor,
        weight: QuantTensor,
        ends: list[int],
        *,
        activation_format: str = "",
    ) -> torch.Tensor:
        """Run one product into a guarded buffer of the input's dtype."""
        name = str(x_RK.dtype).removeprefix("torch.")
        experts, outputs, width = weight.shape
        spec = GroupedSpec(
            experts=experts,
            in_width=width,
            out_width=outputs,
            activation_format=activation_format or name,
            out_dtype=name,
        )
        out = self.buffer(len(x_RK), outputs, dtype=x_RK.dtype)
        end_E = torch.tensor(ends, dtype=torch.int64, device=self.device)
        plan = component.plan_experts(spec, max(len(x_RK), 1))
        component.run_experts(plan, x_RK, component.prepare_experts(weight), end_E, out.tensor)
        return out.check()

    @pytest.mark.parametrize(
        "ends",
        [
            pytest.param([3, 9, 17, 30], id="all"),
            pytest.param([0, 9, 9, 30], id="two empty"),
            pytest.param([30, 30, 30, 30], id="only the first"),
            pytest.param([0, 0, 0, 30], id="only the last"),
            pytest.param([1, 8, 16, 30], id="one, k-1 and k rows"),
        ],
    )
    def test_each_row_is_multiplied_with_its_expert(
        self,
        component: GroupedGemm,
        ends: list[int],
        compute: str,
        expert_format: str,
        generator: torch.Generator,
    ) -> None:
        """A sum of K products, rounded once to the output dtype."""
        dtype = dtype_of(compute)
        x_RK = self.noise(generator, 30, 64, dtype=dtype)
        weight = self.experts(torch.randn(4, 40, 64, generator=generator), expert_format)
        got = self.multiply(component, x_RK, weight, ends)
        w_ENK = weight.dequantise(torch.float64).cpu()
        owner = [sum(end <= row for end in ends) for row in range(30)]
        x_R1K, w_RNK = x_RK.cpu().double()[:, None], w_ENK[owner]
        want, size = (x_R1K * w_RNK).sum(-1), (x_R1K * w_RNK).abs().sum(-1)
        error = 66 * roundoff(accumulation(dtype)) * size
        assert_within(got, want, error + roundoff(dtype) * (want.abs() + error))

    def test_stored_experts_come_back_exactly(
        self, component: GroupedGemm, expert_format: str, generator: torch.Generator
    ) -> None:
        """``dequantise`` of a prepared weight."""
        weight = self.experts(torch.randn(3, 40, 64, generator=generator), expert_format)
        prepared = component.prepare_experts(weight)
        assert_same_bits(prepared.dequantise().cpu(), weight.dequantise(torch.float32).cpu())
        assert prepared.memory_bytes >= weight.data.nbytes

    def test_rows_behind_the_last_end_stay_untouched(
        self, component: GroupedGemm, generator: torch.Generator
    ) -> None:
        """Neither written, nor read: they hold NaN."""
        x_RK = self.noise(generator, 20, 64, dtype=torch.float32)
        x_RK[13:] = torch.nan
        weight = self.experts(torch.randn(3, 40, 64, generator=generator), "bfloat16")
        got = self.multiply(component, x_RK, weight, [4, 4, 13])
        assert bool(got[:13].isfinite().all())
        assert_same_bits(got[13:], self.buffer(7, 40, dtype=torch.float32).tensor)

    @pytest.mark.parametrize("rows", [0, 5])
    def test_experts_without_any_row_give_nothing(
        self, component: GroupedGemm, rows: int, generator: torch.Generator
    ) -> None:
        """All ends zero, with and without rows behind them."""
        x_RK = self.noise(generator, rows, 64, dtype=torch.bfloat16)
        weight = self.experts(torch.randn(3, 40, 64, generator=generator), "bfloat16")
        got = self.multiply(component, x_RK, weight, [0, 0, 0])
        assert_same_bits(got, self.buffer(rows, 40, dtype=torch.bfloat16).tensor)

    def test_the_input_is_rounded_to_the_activation_format(
        self, component: GroupedGemm, activation_format: str, generator: torch.Generator
    ) -> None:
        """Rounding inside gives what rounding beforehand gives, bit for bit."""
        x_RK = self.noise(generator, 12, 64, dtype=torch.bfloat16)
        weight = self.experts(torch.randn(2, 40, 64, generator=generator), "mxfp4")
        inside = self.multiply(
            component, x_RK, weight, [5, 12], activation_format=activation_format
        )
        rounded = fake_quantise(x_RK.cpu(), activation_format).to(self.device)
        assert not torch.equal(rounded, x_RK)
        assert_same_bits(inside, self.multiply(component, rounded, weight, [5, 12]))

    def test_a_row_does_not_depend_on_the_other_rows_of_its_expert(
        self, component: GroupedGemm, compute: str, generator: torch.Generator
    ) -> None:
        """Every count up to 70 in the second of three experts, at both ends, in another order."""
        self.require(component.properties.batch_invariant, "batch invariance")
        x_RK = self.noise(generator, 70, 64, dtype=dtype_of(compute))
        weight = self.experts(torch.randn(3, 24, 64, generator=generator), "mxfp4")

        def run(rows: torch.Tensor) -> list[torch.Tensor]:
            x = torch.cat((x_RK[:3], x_RK[rows.to(self.device)]))
            ends = [3, len(x), len(x)]
            return [self.multiply(component, x, weight, ends)[3:]]

        assert_rows_stand_alone(run, 70, generator)

    def test_the_same_call_gives_the_same_bits(
        self, component: GroupedGemm, generator: torch.Generator
    ) -> None:
        """Twice the same, with other work in between."""
        self.require(component.properties.deterministic, "determinism")
        x_RK = self.noise(generator, 70, 64, dtype=torch.bfloat16)
        weight = self.experts(torch.randn(3, 40, 64, generator=generator), "mxfp4")
        first = self.multiply(component, x_RK, weight, [20, 20, 70])
        self.multiply(component, -x_RK, weight, [0, 50, 70])
        assert_same_bits(self.multiply(component, x_RK, weight, [20, 20, 70]), first)
