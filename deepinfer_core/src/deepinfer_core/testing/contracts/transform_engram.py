"""Do n-grams find their table rows, and does their value enter every stream through its gate?

Shapes: T rows, N n-gram size, C hash columns, S streams, D width.
"""

from __future__ import annotations

import math

import pytest
import torch

from deepinfer_core.interfaces.transform import EngramHash, Transform
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.suite import assert_rows_stand_alone, dtype_of
from deepinfer_core.testing.contracts.transform_suite import TransformSuite, rounding_bound
from deepinfer_core.testing.oracles import transform as oracle
from deepinfer_core.testing.tolerance import assert_within

__all__ = ["EngramContract"]

MULTIPLIERS = {
    1: [76632096046245, 4839876093313, 35959672319349, 73987337458391],
    14: [67716810739261, 51510806800915, 30921347202721, 82619226485591],
}
"""Published multipliers of DeepSeek-V4.1-Flash by layer."""

PRIMES = {
    1: [
        *(16000057, 16000079, 16000081, 16000097, 16000121, 16000129, 16000133, 16000183),
        *(16000189, 16000207, 16000211, 16000253, 16000277, 16000289, 16000307, 16000321),
        *(16000339, 16000381, 16000393, 16000399, 16000403, 16000409, 16000447, 16000463),
    ],
    14: [
        *(16000477, 16000487, 16000499, 16000507, 16000511, 16000573, 16000609, 16000627),
        *(16000667, 16000669, 16000693, 16000697, 16000711, 16000729, 16000759, 16000769),
        *(16000781, 16000799, 16000813, 16000819, 16000841, 16000877, 16000879, 16000889),
    ],
}
"""Published table sizes by layer; eight heads for each n-gram order 2, 3, 4."""

GOLDEN_ROWS = [
    (
        1,
        [40, 30, 20, 10],
        [1326936, 22120929, 142088989, 151706440, 270969918, 287524568, 378628807],
    ),
    (1, [10, 2, 2, 2], [9400104, 24924096, 128026094, 156221192, 261350200, 277988921, 382122658]),
    (
        1,
        [99091, 99090, 12345, 67890],
        [14791388, 31792932, 143126824, 145699808, 260221916, 281679096, 382690871],
    ),
    (
        14,
        [40, 30, 20, 10],
        [5403109, 26519290, 136663117, 159466275, 258079010, 283475728, 378588994],
    ),
    (
        14,
        [10, 2, 2, 2],
        [11315085, 19412660, 135395884, 144699923, 269973942, 285486044, 379075217],
    ),
    (
        14,
        [99091, 99090, 12345, 67890],
        [3381373, 16523618, 130304229, 155137826, 264892231, 274131062, 372251832],
    ),
]
"""Layer, ids at distance 0 to 3, rows of columns 0, 1, 8, 9, 16, 17 and 23."""

GOLDEN_COLUMNS = [0, 1, 8, 9, 16, 17, 23]


Arguments = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


class EngramContract(TransformSuite):
    """Tests of the two Engram operators."""

    def tables(self, layer: int) -> EngramHash:
        """The full model's hash; on the host, as the interface says."""
        prime_C = torch.tensor(PRIMES[layer])
        return EngramHash(
            multiplier_N=torch.tensor(MULTIPLIERS[layer]),
            prime_C=prime_C,
            offset_C=prime_C.cumsum(0) - prime_C,
            order_C=torch.arange(2, 5).repeat_interleave(8),
        )

    def hashed(self, component: Transform, ids: list[list[int]], layer: int) -> list[list[int]]:
        """Table rows of each row's n-grams."""
        compressed_TN = torch.tensor(ids, dtype=torch.int64).view(-1, 4).to(self.device)
        out = self.buffer(len(ids), 24, dtype=torch.int64)
        plan = self.plan(component, "float32")
        component.engram_rows(plan, compressed_TN, self.tables(layer), out.tensor)
        return [list(map(int, row)) for row in out.check().tolist()]

    @pytest.mark.parametrize(("layer", "ids", "rows"), GOLDEN_ROWS)
    def test_golden_ids_find_their_golden_rows(
        self, component: Transform, layer: int, ids: list[int], rows: list[int]
    ) -> None:
        """Ids, multipliers and tables of the full model."""
        got = self.hashed(component, [ids], layer)[0]
        assert [got[column] for column in GOLDEN_COLUMNS] == rows

    @pytest.mark.parametrize("rows", [0, 1, 9])
    def test_hashes_match_integers_without_a_size(
        self, component: Transform, rows: int, generator: torch.Generator
    ) -> None:
        """Every column, with ids up to the largest of the vocabulary."""
        ids = torch.randint(0, 99092, (rows, 4), generator=generator).tolist()
        tables = self.tables(14)
        got = self.hashed(component, ids, 14)
        for row in range(rows):
            want = [
                oracle.engram_row(ids[row], MULTIPLIERS[14], order, prime, offset)
                for order, prime, offset in zip(
                    tables.order_C.tolist(),
                    tables.prime_C.tolist(),
                    tables.offset_C.tolist(),
                    strict=True,
                )
            ]
            assert got[row] == want

    def gated(
        self, component: Transform, arguments: Arguments, image_T: torch.Tensor
    ) -> torch.Tensor:
        """Run into a guarded buffer."""
        trunk_TSD = arguments[0]
        out = self.buffer(*trunk_TSD.shape, dtype=trunk_TSD.dtype)
        plan = self.plan(component, str(trunk_TSD.dtype).removeprefix("torch."))
        component.engram_gate(plan, *arguments, image_T.to(self.device), 1e-20, out.tensor)
        return out.check()

    def arguments(self, generator: torch.Generator, rows: int, compute: str) -> Arguments:
        """Trunk, keys, value, and the two norm weights."""
        streams, width, dtype = self.streams, self.width, dtype_of(compute)
        return (
            self.noise(generator, rows, streams, width, dtype=dtype),
            self.noise(generator, rows, streams, width, dtype=dtype),
            self.noise(generator, rows, width, dtype=dtype),
            self.noise(generator, streams, width, dtype=torch.bfloat16),
            self.noise(generator, streams, width, dtype=torch.bfloat16),
        )

    @pytest.mark.parametrize("rows", [0, 1, 9])
    def test_the_gated_value_matches_fp64(
        self, component: Transform, compute: str, rows: int, generator: torch.Generator
    ) -> None:
        """Three sums of D terms; image rows keep their bits.

        The gate's argument is the root of the dot product, so its absolute error is largest near
        zero: at the smallest dot that counts, 1e-6, the root's slope is 500.
        """
        dtype = dtype_of(compute)
        arguments = self.arguments(generator, rows, compute)
        image_T = torch.arange(rows) % 3 == 2
        got = self.gated(component, arguments, image_T)
        for row in range(rows):
            if image_T[row]:
                assert_same_bits(got[row], arguments[0][row])
                continue
            trunk, key, value = (x[row].cpu() for x in arguments[:3])
            weights = [x.cpu() for x in arguments[3:]]
            want = oracle.engram_streams(trunk, key, value, weights[0], weights[1], 1e-20)
            # Random dots are of the order of 1: the slope of their root stays below 5, and the
            # absolute products of a dot below sqrt(D).
            roundings = 5 * (2 * self.width + 16) * self.width**0.5 / 4
            size = value.double().abs() + trunk.double().abs()
            assert_within(got[row], want, rounding_bound(want, dtype, roundings, size))

    def test_a_trunk_of_zeros_opens_the_gate_half_way(
        self, component: Transform, compute: str, generator: torch.Generator
    ) -> None:
        """A dot product of zero has no sign: the gate's argument is zero, not a thousandth."""
        arguments = self.arguments(generator, 2, compute)
        arguments[0].zero_()
        got = self.gated(component, arguments, torch.zeros(2, dtype=torch.bool))
        want = (arguments[2] / 2)[:, None].expand_as(got).contiguous()
        assert_same_bits(got, want)

    @pytest.mark.parametrize("sign", [1, -1])
    def test_a_dot_product_near_zero_counts_as_a_millionth(
        self, component: Transform, sign: int
    ) -> None:
        """One channel and tiny norm weights: 1e-9 times sqrt(D). Its root is a thousandth."""
        unit_D = torch.zeros(self.width)
        unit_D[0] = 1
        ones_SD = torch.ones(self.streams, self.width)
        trunk_TSD = unit_D.expand(1, self.streams, -1).contiguous()
        value_TD = torch.full((1, self.width), 1000.0)
        arguments = (
            trunk_TSD.to(self.device),
            (sign * trunk_TSD).to(self.device),
            value_TD.to(self.device),
            (1e-4 * ones_SD).to(self.device),
            (1e-5 * ones_SD).to(self.device),
        )
        got = self.gated(component, arguments, torch.zeros(1, dtype=torch.bool))
        gate = 1 / (1 + math.exp(-sign * 1e-3))
        want = trunk_TSD[0].double() + gate * value_TD.double()
        # A sigmoid, a product and a sum of numbers up to 1000.
        size = torch.full_like(want, 1000.0)
        assert_within(got[0], want, rounding_bound(want, torch.float32, 8, size))

    def test_values_may_be_added_in_place(
        self, component: Transform, compute: str, generator: torch.Generator
    ) -> None:
        """With the bits of an addition into another buffer."""
        arguments = self.arguments(generator, 3, compute)
        image_T = torch.tensor([False, True, False])
        want = self.gated(component, arguments, image_T)
        plan = self.plan(component, compute)
        component.engram_gate(plan, *arguments, image_T.to(self.device), 1e-20, arguments[0])
        assert_same_bits(arguments[0], want)

    def test_the_gate_of_a_row_does_not_depend_on_its_batch(
        self, component: Transform, compute: str, generator: torch.Generator
    ) -> None:
        """Every row count up to 70, or those of ``row_counts``, in every place."""
        self.require(component.properties.batch_invariant, "batch invariance")
        arguments = self.arguments(generator, 70, compute)
        image_T = torch.arange(70) % 5 == 0

        def run(rows: torch.Tensor) -> list[torch.Tensor]:
            there = rows.to(self.device)
            trunk, key, value, query_weight, key_weight = arguments
            some = (trunk[there], key[there], value[there], query_weight, key_weight)
            return [self.gated(component, some, image_T[rows])]

        assert_rows_stand_alone(run, 70, generator, counts=self.row_counts)
