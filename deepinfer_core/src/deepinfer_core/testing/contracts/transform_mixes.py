"""Do the hyper-connections collapse, mix and expand as their formulas say?

Shapes: T rows, S streams, D width, M = S * (2 + S) mixes.
"""

from __future__ import annotations

import pytest
import torch

from deepinfer_core.interfaces.transform import MixSpec, Transform
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.suite import (
    accumulation,
    assert_rows_stand_alone,
    dtype_of,
)
from deepinfer_core.testing.contracts.transform_suite import TransformSuite, rounding_bound
from deepinfer_core.testing.oracles import transform as oracle
from deepinfer_core.testing.tolerance import assert_within, roundoff

__all__ = ["MixContract"]

SPEC = MixSpec(sinkhorn_iterations=20, eps=1e-6, norm_eps=1e-20)
GOLDEN_COMB = [
    [0.097867, 0.528014, 0.187059, 0.187059],
    [0.187059, 0.097867, 0.357536, 0.357536],
    [0.528014, 0.276251, 0.097867, 0.097868],
    [0.187059, 0.097867, 0.357536, 0.357536],
]

Mixes = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class MixContract(TransformSuite):
    """Tests of the three hyper-connection operators."""

    def mixes(
        self,
        component: Transform,
        trunk_TSD: torch.Tensor,
        fn_MK: torch.Tensor,
        base_M: torch.Tensor,
        scale_3: torch.Tensor,
        spec: MixSpec = SPEC,
    ) -> Mixes:
        """Run into guarded buffers."""
        rows, streams = trunk_TSD.shape[:2]
        dtype = accumulation(trunk_TSD.dtype)
        pre = self.buffer(rows, streams, dtype=dtype)
        post = self.buffer(rows, streams, dtype=dtype)
        comb = self.buffer(rows, streams, streams, dtype=dtype)
        component.mhc_mixes(
            self.plan(component, str(trunk_TSD.dtype).removeprefix("torch.")),
            trunk_TSD,
            component.prepare_mixes(fn_MK),
            base_M,
            scale_3,
            spec,
            pre.tensor,
            post.tensor,
            comb.tensor,
        )
        return pre.check(), post.check(), comb.check()

    def weights(self, generator: torch.Generator) -> Mixes:
        """Projection, offsets and factors, such that mixes are far from uniform."""
        mixes, width = self.streams * (2 + self.streams), self.streams * self.width
        fn_MK = self.noise(generator, mixes, width, dtype=torch.float32) / width**0.5
        base_M = self.noise(generator, mixes, dtype=torch.float32)
        scale_3 = torch.tensor([0.5, 1.5, 2.0], device=self.device)
        return fn_MK, base_M, scale_3

    @pytest.mark.parametrize("rows", [0, 1, 9])
    @pytest.mark.parametrize("iterations", [1, 2, 20])
    def test_mixes_match_fp64(
        self,
        component: Transform,
        compute: str,
        rows: int,
        iterations: int,
        generator: torch.Generator,
    ) -> None:
        """A product of S * D terms, and iterations that halve errors rather than add them up."""
        dtype = dtype_of(compute)
        trunk_TSD = self.noise(generator, rows, self.streams, self.width, dtype=dtype)
        fn_MK, base_M, scale_3 = self.weights(generator)
        spec = MixSpec(sinkhorn_iterations=iterations, eps=1e-6, norm_eps=1e-20)
        got = self.mixes(component, trunk_TSD, fn_MK, base_M, scale_3, spec)
        u = roundoff(accumulation(dtype))
        for row in range(rows):
            trunk = trunk_TSD[row].cpu()
            weights = (fn_MK.cpu(), base_M.cpu(), scale_3.cpu())
            want = oracle.mixes(trunk, *weights, iterations, 1e-6, 1e-20)
            # A mix z is off by (S * D + D) u times its absolute products, at most 2 after the
            # norm; its exponential by as much relatively, and each iteration adds 12 roundings.
            products = (weights[0].double().abs() @ trunk.double().abs().reshape(-1)).max()
            products /= trunk.double().square().mean().sqrt()
            off = 2 * 2 * self.width * (self.streams + 1) * u * products
            for mine, exact in zip(got, want, strict=True):
                assert_within(mine[row], exact, (off + (12 * iterations + 20) * u) * 2)

    def test_golden_logits_give_the_golden_matrix(self, component: Transform) -> None:
        """Published to six decimals; a projection of zeros leaves the offsets."""
        trunk_TSD = torch.ones(1, 4, self.width, device=self.device)
        logits = [((3 * i + 5 * j) % 7) / 3 for i in range(4) for j in range(4)]
        base_M = torch.tensor([0.0] * 8 + logits, device=self.device)
        fn_MK = torch.zeros(24, 4 * self.width, device=self.device)
        scale_3 = torch.ones(3, device=self.device)
        pre, post, comb = self.mixes(component, trunk_TSD, fn_MK, base_M, scale_3)
        assert_within(
            comb[0], torch.tensor(GOLDEN_COMB, dtype=torch.float64), 5.1e-7 + 4 * 2.0**-24
        )
        assert_within(pre[0], torch.full((4,), 0.5 + 1e-6).double(), 2.0**-23)
        assert_within(post[0], torch.ones(4).double(), 2.0**-23)

    def test_columns_sum_to_one(
        self, component: Transform, compute: str, generator: torch.Generator
    ) -> None:
        """The last step normalises columns, with eps in the divisor.

        Rows sum to one as nearly as the iterations get, which ``test_mixes_match_fp64`` compares.
        """
        trunk_TSD = self.noise(generator, 9, self.streams, self.width, dtype=dtype_of(compute))
        comb_TSS = self.mixes(component, trunk_TSD, *self.weights(generator))[2].cpu().double()
        ones = torch.ones(9, self.streams, dtype=torch.float64)
        # The eps takes away a millionth at most; fp32 sums add a few roundings.
        assert_within(comb_TSS.sum(1), ones, 1.01e-6 + 8 * 2.0**-24)

    def collapsed(
        self, component: Transform, trunk_TSD: torch.Tensor, pre_TS: torch.Tensor
    ) -> torch.Tensor:
        """Run into a guarded buffer."""
        out = self.buffer(len(trunk_TSD), self.width, dtype=trunk_TSD.dtype)
        plan = self.plan(component, str(trunk_TSD.dtype).removeprefix("torch."))
        component.mhc_collapse(plan, trunk_TSD, pre_TS, out.tensor)
        return out.check()

    def expanded(
        self,
        component: Transform,
        trunk_TSD: torch.Tensor,
        y_TD: torch.Tensor,
        post_TS: torch.Tensor,
        comb_TSS: torch.Tensor,
    ) -> torch.Tensor:
        """Run into a guarded buffer."""
        out = self.buffer(*trunk_TSD.shape, dtype=trunk_TSD.dtype)
        plan = self.plan(component, str(trunk_TSD.dtype).removeprefix("torch."))
        component.mhc_expand(plan, trunk_TSD, y_TD, post_TS, comb_TSS, out.tensor)
        return out.check()

    @pytest.mark.parametrize("rows", [0, 1, 9])
    def test_collapse_and_expand_match_fp64(
        self, component: Transform, compute: str, rows: int, generator: torch.Generator
    ) -> None:
        """Sums of S and S + 1 products; source and destination are not to be confused."""
        dtype = dtype_of(compute)
        trunk_TSD = self.noise(generator, rows, self.streams, self.width, dtype=dtype)
        y_TD = self.noise(generator, rows, self.width, dtype=dtype)
        mix = accumulation(dtype)
        pre_TS, post_TS = (self.noise(generator, rows, self.streams, dtype=mix) for _ in range(2))
        comb_TSS = self.noise(generator, rows, self.streams, self.streams, dtype=mix)
        collapsed = self.collapsed(component, trunk_TSD, pre_TS)
        expanded = self.expanded(component, trunk_TSD, y_TD, post_TS, comb_TSS)
        for row in range(rows):
            trunk, pre = trunk_TSD[row].cpu(), pre_TS[row].cpu()
            want = oracle.collapse(trunk, pre)
            size = oracle.collapse(trunk.abs(), pre.abs())
            assert_within(collapsed[row], want, rounding_bound(want, dtype, 6, size))
            y, post, comb = (x[row].cpu() for x in (y_TD, post_TS, comb_TSS))
            want = oracle.expand(trunk, y, post, comb)
            size = oracle.expand(trunk.abs(), y.abs(), post.abs(), comb.abs())
            assert_within(expanded[row], want, rounding_bound(want, dtype, 7, size))

    def test_streams_may_be_expanded_in_place(
        self, component: Transform, compute: str, generator: torch.Generator
    ) -> None:
        """With the bits of an expansion into another buffer."""
        dtype = dtype_of(compute)
        trunk_TSD = self.noise(generator, 3, self.streams, self.width, dtype=dtype)
        y_TD = self.noise(generator, 3, self.width, dtype=dtype)
        post_TS = self.noise(generator, 3, self.streams, dtype=accumulation(dtype))
        comb_TSS = self.noise(generator, 3, self.streams, self.streams, dtype=accumulation(dtype))
        want = self.expanded(component, trunk_TSD, y_TD, post_TS, comb_TSS)
        plan = self.plan(component, compute)
        component.mhc_expand(plan, trunk_TSD, y_TD, post_TS, comb_TSS, trunk_TSD)
        assert_same_bits(trunk_TSD, want)

    def test_the_mixes_of_a_row_do_not_depend_on_its_batch(
        self, component: Transform, compute: str, generator: torch.Generator
    ) -> None:
        """Mixes, collapse and expansion; every row count up to 70, in every place."""
        self.require(component.properties.batch_invariant, "batch invariance")
        dtype = dtype_of(compute)
        trunk_TSD = self.noise(generator, 70, self.streams, self.width, dtype=dtype)
        y_TD = self.noise(generator, 70, self.width, dtype=dtype)
        weights = self.weights(generator)

        def run(rows: torch.Tensor) -> list[torch.Tensor]:
            rows = rows.to(self.device)
            trunk, y = trunk_TSD[rows], y_TD[rows]
            pre, post, comb = self.mixes(component, trunk, *weights)
            collapsed = self.collapsed(component, trunk, pre)
            return [pre, post, comb, collapsed, self.expanded(component, trunk, y, post, comb)]

        assert_rows_stand_alone(run, 70, generator)
