"""Do the row-wise operators compute what their formulas say?

Shapes: T rows, D width, H heads, P rotated pairs, E experts, k experts a row, I expert width.
"""

from __future__ import annotations

import math
from typing import ClassVar

import pytest
import torch

from deepinfer_core.interfaces.transform import Transform
from deepinfer_core.numeric import fake_quantise
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.suite import (
    accumulation,
    assert_rows_stand_alone,
    dtype_of,
)
from deepinfer_core.testing.contracts.transform_engram import EngramContract
from deepinfer_core.testing.contracts.transform_mixes import MixContract
from deepinfer_core.testing.contracts.transform_runs import RunContract
from deepinfer_core.testing.contracts.transform_suite import TransformSuite, rounding_bound
from deepinfer_core.testing.oracles import transform as oracle
from deepinfer_core.testing.tolerance import assert_within

__all__ = ["TransformContract"]

ROWS = [0, 1, 9]


class RowContract(TransformSuite):
    """Tests of norm, rotation, rounding, activation and routing."""

    quantised_formats: ClassVar[tuple[str, ...]] = ("mxfp8", "mxfp4", "fp4_e4m3x16")
    sweeps: ClassVar[dict[str, str]] = {
        **TransformSuite.sweeps,
        "number_format": "quantised_formats",
    }

    def norm(
        self,
        component: Transform,
        x_TD: torch.Tensor,
        weight_D: torch.Tensor,
        eps: float = 1e-20,
    ) -> torch.Tensor:
        """Unless said otherwise with the model's eps."""
        compute = str(x_TD.dtype).removeprefix("torch.")
        out = self.buffer(*x_TD.shape, dtype=x_TD.dtype)
        component.rms_norm(self.plan(component, compute), x_TD, weight_D, eps, out.tensor)
        return out.check()

    @pytest.mark.parametrize("rows", ROWS)
    @pytest.mark.parametrize("eps", [1e-20, 0.5])
    def test_a_norm_matches_fp64(
        self, component: Transform, compute: str, rows: int, eps: float, generator: torch.Generator
    ) -> None:
        """A mean of D squares and eps under a root, two products: D / 2 + 8 roundings."""
        dtype = dtype_of(compute)
        x_TD = 5 * self.noise(generator, rows, self.width, dtype=dtype)
        weight_D = self.noise(generator, self.width, dtype=torch.bfloat16)
        got = self.norm(component, x_TD, weight_D, eps)
        for row in range(rows):
            want = oracle.rms_norm(x_TD[row].cpu(), weight_D.cpu(), eps)
            assert_within(got[row], want, rounding_bound(want, dtype, self.width / 2 + 8))

    def test_the_norm_of_zeros_is_zeros(self, component: Transform, compute: str) -> None:
        """The tiny eps keeps a division by zero out."""
        x_TD = torch.zeros(2, self.width, dtype=dtype_of(compute), device=self.device)
        weight_D = torch.ones(self.width, device=self.device)
        assert_same_bits(self.norm(component, x_TD, weight_D), x_TD)

    @pytest.mark.parametrize("rows", ROWS)
    def test_a_sum_is_rounded_once(
        self, component: Transform, compute: str, rows: int, generator: torch.Generator
    ) -> None:
        """To the bits of a sum in the accumulation dtype that is then rounded; odd widths too."""
        wide = accumulation(dtype_of(compute))
        for width in (self.width, 5):
            x_TD = self.noise(generator, rows, width, dtype=wide)
            y_TD = self.noise(generator, rows, width, dtype=wide)
            want = (x_TD + y_TD).to(dtype_of(compute))
            out = self.buffer(rows, width, dtype=dtype_of(compute))
            component.add(self.plan(component, compute), x_TD, y_TD, out.tensor)
            assert_same_bits(out.check(), want)

    def rotated(
        self, component: Transform, x_THD: torch.Tensor, angle_TP: torch.Tensor, inverse: bool
    ) -> torch.Tensor:
        """Into another buffer; angles are fp32 as in the model."""
        compute = str(x_THD.dtype).removeprefix("torch.")
        out = self.buffer(*x_THD.shape, dtype=x_THD.dtype)
        cosine, sine = angle_TP.cos().to(self.device), angle_TP.sin().to(self.device)
        plan = self.plan(component, compute)
        component.rope(plan, x_THD, cosine, sine, out.tensor, inverse=inverse)
        return out.check()

    @pytest.mark.parametrize("rows", ROWS)
    @pytest.mark.parametrize("inverse", [False, True])
    def test_a_rotation_matches_complex_numbers(
        self,
        component: Transform,
        compute: str,
        rows: int,
        inverse: bool,
        generator: torch.Generator,
    ) -> None:
        """Two products, a sum, and fp32 cosines and sines, each off by a rounding of 1."""
        dtype = dtype_of(compute)
        x_THD = self.noise(generator, rows, 3, self.width, dtype=dtype)
        angle_TP = 6 * torch.rand(rows, 8, generator=generator)
        got = self.rotated(component, x_THD, angle_TP, inverse)
        for row in range(rows):
            angle_P = -angle_TP[row] if inverse else angle_TP[row]
            for head in range(3):
                want = oracle.rotate(x_THD[row, head].cpu(), angle_P)
                size = x_THD[row, head].cpu().double().abs().max()
                # Cosines and sines are fp32 in every compute dtype.
                fp32_off = 4 * 2.0**-24 * size
                bound = rounding_bound(want, dtype, 6, size) + fp32_off
                assert_within(got[row, head], want, bound)
                plain = self.width - 16
                assert_same_bits(got[row, head, :plain], x_THD[row, head, :plain])

    def test_the_golden_vector_is_rotated_to_its_golden_values(self, component: Transform) -> None:
        """(1 .. 64) / 64 at position 3 with base 10000, published to five decimals."""
        x_THD = (torch.arange(1, 65) / 64).view(1, 1, 64).to(self.device)
        frequency_P = 1 / 10000 ** (torch.arange(0, 64, 2) / 64)
        got = self.rotated(component, x_THD, (3 * frequency_P)[None], False)[0, 0].cpu().double()
        want = [-0.01988, -0.02873, -0.07808, -0.00276, -0.10218, 0.06673]
        assert_within(got[:6], torch.tensor(want, dtype=torch.float64), 5.1e-6)
        assert_within(got[-2:], torch.tensor([0.98397, 1.00039], dtype=torch.float64), 5.1e-6)

    def test_a_rotation_may_be_in_place(
        self, component: Transform, compute: str, generator: torch.Generator
    ) -> None:
        """With the bits of a rotation into another buffer."""
        x_THD = self.noise(generator, 3, 2, self.width, dtype=dtype_of(compute))
        angle_TP = torch.rand(3, 8, generator=generator)
        want = self.rotated(component, x_THD, angle_TP, False)
        cosine, sine = angle_TP.cos().to(self.device), angle_TP.sin().to(self.device)
        component.rope(self.plan(component, compute), x_THD, cosine, sine, x_THD)
        assert_same_bits(x_THD, want)

    def test_rounding_gives_the_numbers_of_the_format(
        self, component: Transform, number_format: str, compute: str, generator: torch.Generator
    ) -> None:
        """Bit for bit, heads and all; a plain format leaves numbers that it holds as they are."""
        x_THD = self.noise(generator, 3, 2, self.width, dtype=dtype_of(compute))
        plan = self.plan(component, compute)
        for name in (number_format, compute):
            out = self.buffer(*x_THD.shape, dtype=x_THD.dtype)
            component.fake_quantise(plan, x_THD, name, out.tensor)
            assert_same_bits(out.check().cpu(), fake_quantise(x_THD.cpu(), name))
        narrow = self.buffer(*x_THD.shape, dtype=torch.bfloat16)
        component.fake_quantise(plan, x_THD, number_format, narrow.tensor)
        assert_same_bits(
            narrow.check().cpu(), fake_quantise(x_THD.cpu(), number_format).to(torch.bfloat16)
        )

    def activated(
        self, component: Transform, x_R2I: torch.Tensor, route_R: torch.Tensor | None
    ) -> torch.Tensor:
        """With the model's limit of 10."""
        compute = str(x_R2I.dtype).removeprefix("torch.")
        out = self.buffer(len(x_R2I), x_R2I.shape[1] // 2, dtype=x_R2I.dtype)
        component.swiglu(self.plan(component, compute), x_R2I, route_R, 10.0, out.tensor)
        return out.check()

    @pytest.mark.parametrize("rows", ROWS)
    def test_the_activation_matches_fp64(
        self, component: Transform, compute: str, rows: int, generator: torch.Generator
    ) -> None:
        """Values around and beyond the limit; an exponential of up to 60 u, and six roundings."""
        dtype = dtype_of(compute)
        x_R2I = 12 * self.noise(generator, rows, 48, dtype=dtype)
        route_R = self.noise(generator, rows, dtype=accumulation(dtype))
        routed = self.activated(component, x_R2I, route_R)
        plain = self.activated(component, x_R2I, None)
        for row in range(rows):
            gate, up = x_R2I[row].cpu().chunk(2)
            for got, route in ((routed, float(route_R[row])), (plain, 1.0)):
                want = oracle.swiglu(gate, up, route, 10.0)
                assert_within(got[row], want, rounding_bound(want, dtype, 66))

    @pytest.mark.parametrize("rows", ROWS)
    def test_experts_are_chosen_with_the_bias_and_weighed_without(
        self, component: Transform, compute: str, rows: int, generator: torch.Generator
    ) -> None:
        """Image rows have a bias of their own; a logarithm, a root, a sum of k and a quotient."""
        dtype = accumulation(dtype_of(compute))
        logits_TE = 3 * self.noise(generator, rows, 16, dtype=dtype)
        bias_E, image_bias_E = (self.noise(generator, 16, dtype=torch.float32) for _ in range(2))
        image_T = torch.arange(rows) % 2 == 1
        expert = self.buffer(rows, 4, dtype=torch.int64)
        weight = self.buffer(rows, 4, dtype=dtype)
        component.gate_topk(
            self.plan(component, compute),
            logits_TE,
            bias_E,
            image_bias_E,
            image_T.to(self.device),
            1.5,
            expert.tensor,
            weight.tensor,
        )
        for row in range(rows):
            bias = (image_bias_E if image_T[row] else bias_E).tolist()
            chosen, weights = oracle.choose_experts(logits_TE[row].tolist(), bias, 1.5, 4)
            assert expert.check()[row].tolist() == chosen
            want = torch.tensor(weights, dtype=torch.float64)
            assert_within(weight.check()[row], want, rounding_bound(want, dtype, 32))

    def test_golden_logits_choose_golden_experts(self, component: Transform) -> None:
        """A bias of 0.9 brings expert 0 in, and does not show in its weight."""
        logits = torch.tensor([[-1.0, 0, 1, 2, 3, 0.5, -0.5, 1.5]], device=self.device)
        bias_E = torch.tensor([0.9] + [0.0] * 7, device=self.device)
        expert = torch.empty(1, 3, dtype=torch.int64, device=self.device)
        weight = torch.empty(1, 3, device=self.device)
        image_T = torch.zeros(1, dtype=torch.bool, device=self.device)
        plan = self.plan(component, "float32")
        component.gate_topk(plan, logits, bias_E, bias_E * 0, image_T, 1.5, expert, weight)
        assert expert.tolist() == [[4, 0, 3]]
        want = torch.tensor([[0.695789, 0.223039, 0.581172]], dtype=torch.float64)
        assert_within(weight, want, 5.1e-7 + 4 * 2.0**-24)

    def test_equal_experts_are_chosen_in_ascending_order(self, component: Transform) -> None:
        """Forty equal scores: more than an unstable sort keeps in order."""
        logits = torch.zeros(2, 40, device=self.device)
        logits[1, 20:] = 1
        expert = torch.empty(2, 6, dtype=torch.int64, device=self.device)
        weight = torch.empty(2, 6, device=self.device)
        bias_E = torch.zeros(40, device=self.device)
        image_T = torch.zeros(2, dtype=torch.bool, device=self.device)
        plan = self.plan(component, "float32")
        component.gate_topk(plan, logits, bias_E, bias_E, image_T, 1.0, expert, weight)
        assert expert.tolist() == [list(range(6)), list(range(20, 26))]

    def test_extreme_logits_give_finite_weights(self, component: Transform) -> None:
        """Neither does the exponential overflow, nor does the sum vanish."""
        logits = torch.tensor([[1e4, -1e4, 90.0, -90.0]], device=self.device)
        expert = torch.empty(1, 2, dtype=torch.int64, device=self.device)
        weight = torch.empty(1, 2, device=self.device)
        bias_E = torch.zeros(4, device=self.device)
        image_T = torch.zeros(1, dtype=torch.bool, device=self.device)
        plan = self.plan(component, "float32")
        component.gate_topk(plan, logits, bias_E, bias_E, image_T, 1.0, expert, weight)
        assert expert.tolist() == [[0, 2]]
        scores = [math.sqrt(1e4), math.sqrt(90.0)]
        want = torch.tensor([[score / sum(scores) for score in scores]], dtype=torch.float64)
        assert_within(weight, want, 16 * 2.0**-24)

    def test_a_row_does_not_depend_on_its_batch(
        self, component: Transform, compute: str, generator: torch.Generator
    ) -> None:
        """Norm, rotation, rounding, activation and routing; row counts up to 70."""
        self.require(component.properties.batch_invariant, "batch invariance")
        dtype = dtype_of(compute)
        x_TD = self.noise(generator, 70, self.width, dtype=dtype)
        weight_D = self.noise(generator, self.width, dtype=torch.bfloat16)
        logits_TE = self.noise(generator, 70, 9, dtype=accumulation(dtype))
        angle_TP = torch.rand(70, 8, generator=generator)
        bias_E = self.noise(generator, 9, dtype=torch.float32)
        image_T = (torch.arange(70) % 3 == 0).to(self.device)
        plan = self.plan(component, compute)

        def run(rows: torch.Tensor) -> list[torch.Tensor]:
            there = rows.to(self.device)
            x = x_TD[there]
            expert = torch.empty(len(rows), 2, dtype=torch.int64, device=self.device)
            weight = torch.empty(len(rows), 2, dtype=accumulation(dtype), device=self.device)
            component.gate_topk(
                plan, logits_TE[there], bias_E, -bias_E, image_T[there], 1.5, expert, weight
            )
            return [
                self.norm(component, x, weight_D),
                self.rotated(component, x[:, None].contiguous(), angle_TP[rows], False),
                # A ragged width, so that vectors end within rows.
                self.activated(component, x[:, :38].contiguous(), None),
                expert,
                weight,
            ]

        assert_rows_stand_alone(run, 70, generator, counts=self.row_counts)


class TransformContract(RowContract, MixContract, RunContract, EngramContract):
    """All tests of ``Transform``."""
