"""Does a dense product multiply, round once, and leave its neighbours alone?

Shapes: T rows, K input width, N output width, G groups.
"""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch

from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.gemm import DenseGemm, DenseSpec
from deepinfer_core.numeric import QuantTensor, fake_quantise, number_format, quantise
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.suite import (
    ContractSuite,
    accumulation,
    assert_rows_stand_alone,
    dtype_of,
)
from deepinfer_core.testing.tolerance import assert_within, roundoff

__all__ = ["DenseGemmContract"]

ROWS = 70


class DenseGemmContract(ContractSuite):
    """Tests of ``DenseGemm``.

    Attributes:
        weight_formats: formats that ``prepare`` takes.
        activation_formats: formats that inputs are rounded to.
        shapes: (K, N) to test; ragged ones show where tiles end.
    """

    weight_formats: ClassVar[tuple[str, ...]] = ("fp8_32x32", "mxfp4", "bfloat16", "float32")
    activation_formats: ClassVar[tuple[str, ...]] = ("mxfp8",)
    shapes: ClassVar[tuple[tuple[int, int], ...]] = (
        (32, 4),
        (64, 33),
        (96, 160),
        (512, 24),
        (512, 1),
    )
    sweeps: ClassVar[dict[str, str]] = {
        **ContractSuite.sweeps,
        "weight_format": "weight_formats",
        "activation_format": "activation_formats",
        "shape": "shapes",
    }

    def weight(self, values: torch.Tensor, weight_format: str) -> QuantTensor:
        """Quantise on the CPU, then move."""
        stored = quantise(values, weight_format)
        scale = None if stored.scale is None else stored.scale.to(self.device)
        return QuantTensor(data=stored.data.to(self.device), scale=scale, format=weight_format)

    def multiply(
        self,
        component: DenseGemm,
        x_TK: torch.Tensor,
        weight: QuantTensor,
        *,
        activation_format: str = "",
        out_dtype: str = "",
        groups: int = 1,
    ) -> torch.Tensor:
        """Run one product into a guarded buffer; by default nothing is rounded first."""
        name = str(x_TK.dtype).removeprefix("torch.")
        spec = DenseSpec(
            in_width=weight.shape[1],
            out_width=weight.shape[0] // groups,
            groups=groups,
            activation_format=activation_format or name,
            out_dtype=out_dtype or name,
        )
        out = self.buffer(len(x_TK), weight.shape[0], dtype=dtype_of(spec.out_dtype))
        plan = component.plan(spec, max(len(x_TK), 1))
        before = x_TK.clone()
        component.run(plan, x_TK, component.prepare(weight), out.tensor)
        assert_same_bits(x_TK, before)
        return out.check()

    def test_products_of_integers_are_exact(
        self, component: DenseGemm, weight_format: str, compute: str, generator: torch.Generator
    ) -> None:
        """Sums of 32 products of at most 3 and 2 stay below 256, where even bf16 is exact."""
        x_TK = torch.randint(-3, 4, (9, 32), generator=generator)
        w_NK = torch.randint(-2, 3, (40, 32), generator=generator)
        x = x_TK.to(dtype_of(compute)).to(self.device)
        got = self.multiply(component, x, self.weight(w_NK.float(), weight_format))
        assert_same_bits(got.cpu(), (x_TK @ w_NK.t()).to(dtype_of(compute)))

    @pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, ROWS])
    def test_products_match_fp64(
        self,
        component: DenseGemm,
        rows: int,
        compute: str,
        shape: tuple[int, int],
        generator: torch.Generator,
    ) -> None:
        """A sum of K products, rounded once to the output dtype."""
        dtype = dtype_of(compute)
        width, outputs = shape
        x_TK = self.noise(generator, rows, width, dtype=dtype)
        weight = self.weight(torch.randn(outputs, width, generator=generator), "bfloat16")
        got = self.multiply(component, x_TK, weight)
        x, w = x_TK.cpu().double(), weight.dequantise(torch.float64).cpu()
        want = x @ w.t()
        error = (width + 2) * roundoff(accumulation(dtype)) * (x.abs() @ w.abs().t())
        assert_within(got, want, error + roundoff(dtype) * (want.abs() + error))

    def test_a_quantised_weight_means_its_exact_values(
        self, component: DenseGemm, weight_format: str, generator: torch.Generator
    ) -> None:
        """The product is the one with the dequantised weight, and ``dequantise`` gives that."""
        x_TK = self.noise(generator, 9, 96, dtype=torch.float32)
        weight = self.weight(torch.randn(70, 96, generator=generator), weight_format)
        exact = weight.dequantise(torch.float32)
        assert_same_bits(component.prepare(weight).dequantise().cpu(), exact.cpu())
        assert component.prepare(weight).memory_bytes >= weight.data.nbytes
        got = self.multiply(component, x_TK, weight)
        x, w = x_TK.cpu().double(), exact.cpu().double()
        # K products in fp32, as in the test above.
        error = 98 * roundoff(torch.float32) * (x.abs() @ w.abs().t())
        assert_within(got, x @ w.t(), error)

    @pytest.mark.parametrize("rows", [1, 9])
    def test_the_input_is_rounded_to_the_activation_format(
        self,
        component: DenseGemm,
        activation_format: str,
        compute: str,
        rows: int,
        generator: torch.Generator,
    ) -> None:
        """Rounding inside gives what rounding beforehand gives, bit for bit."""
        x_TK = self.noise(generator, rows, 64, dtype=dtype_of(compute))
        weight = self.weight(torch.randn(40, 64, generator=generator), "bfloat16")
        inside = self.multiply(component, x_TK, weight, activation_format=activation_format)
        rounded = fake_quantise(x_TK.cpu(), activation_format).to(self.device)
        assert_same_bits(
            inside, self.multiply(component, rounded, weight, activation_format=activation_format)
        )
        x, w = rounded.cpu().double(), weight.dequantise(torch.float64).cpu()
        dtype = dtype_of(compute)
        want, size = x @ w.t(), x.abs() @ w.abs().t()
        error = 66 * roundoff(accumulation(dtype)) * size
        assert_within(inside, want, error + roundoff(dtype) * (want.abs() + error))

    @pytest.mark.parametrize("groups", [2, 3])
    def test_groups_are_products_of_their_own(
        self, component: DenseGemm, groups: int, compute: str, generator: torch.Generator
    ) -> None:
        """Group g reads its own columns, and writes its own."""
        x_TX = self.noise(generator, 9, groups * 64, dtype=dtype_of(compute))
        weight = self.weight(torch.randn(groups * 32, 64, generator=generator), "bfloat16")
        got = self.multiply(component, x_TX, weight, groups=groups)
        for group in range(groups):
            part = QuantTensor(
                data=weight.data[group * 32 : (group + 1) * 32], scale=None, format="bfloat16"
            )
            x_TK = x_TX[:, group * 64 : (group + 1) * 64].contiguous()
            alone = self.multiply(component, x_TK, part)
            assert_same_bits(got[:, group * 32 : (group + 1) * 32].contiguous(), alone)

    def test_sums_can_be_returned_unrounded(
        self, component: DenseGemm, generator: torch.Generator
    ) -> None:
        """An fp32 result of bf16 rows is the same sum before its rounding."""
        x_TK = self.noise(generator, 9, 64, dtype=torch.bfloat16)
        weight = self.weight(torch.randn(40, 64, generator=generator), "bfloat16")
        wide = self.multiply(component, x_TK, weight, out_dtype="float32")
        assert_same_bits(wide.to(torch.bfloat16), self.multiply(component, x_TK, weight))

    def test_a_row_does_not_depend_on_its_batch(
        self,
        component: DenseGemm,
        compute: str,
        shape: tuple[int, int],
        generator: torch.Generator,
    ) -> None:
        """Every row count up to 70, at both ends, and in another order."""
        self.require(component.properties.batch_invariant, "batch invariance")
        width, outputs = shape
        x_TK = self.noise(generator, ROWS, width, dtype=dtype_of(compute))
        weight = self.weight(torch.randn(outputs, width, generator=generator), "bfloat16")
        assert_rows_stand_alone(
            lambda rows: [self.multiply(component, x_TK[rows.to(self.device)], weight)],
            ROWS,
            generator,
        )

    def test_the_same_call_gives_the_same_bits(
        self, component: DenseGemm, weight_format: str, generator: torch.Generator
    ) -> None:
        """Twice the same, with other work in between."""
        self.require(component.properties.deterministic, "determinism")
        x_TK = self.noise(generator, ROWS, 256, dtype=torch.bfloat16)
        weight = self.weight(torch.randn(96, 256, generator=generator), weight_format)
        first = self.multiply(component, x_TK, weight)
        self.multiply(component, -x_TK, weight)
        assert_same_bits(self.multiply(component, x_TK, weight), first)

    def test_an_unknown_format_is_refused_when_it_is_planned(self, component: DenseGemm) -> None:
        """Not in the middle of a step."""
        spec = DenseSpec(
            in_width=64, out_width=64, activation_format="no_such_format", out_dtype="bfloat16"
        )
        with pytest.raises(NotSupported, match="no_such_format"):
            component.plan(spec, 1)

    def test_a_width_of_partial_groups_is_refused_when_it_is_planned(
        self, component: DenseGemm, activation_format: str
    ) -> None:
        """Scales are shared by whole groups of channels."""
        width = number_format(activation_format).group_columns + 1
        spec = DenseSpec(
            in_width=width,
            out_width=64,
            activation_format=activation_format,
            out_dtype="bfloat16",
        )
        with pytest.raises(NotSupported, match=str(width)):
            component.plan(spec, 1)
