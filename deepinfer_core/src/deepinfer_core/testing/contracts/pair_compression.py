"""Does a cache codec blend pairs of tokens, however a prompt is cut?

Part of the suite of ``CacheCodec``.

Shapes: T rows, D width, B bytes.
"""

from __future__ import annotations

import pytest
import torch

from deepinfer_core.interfaces.attention import CacheCodec, CachePages
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.pages import make_pages
from deepinfer_core.testing.contracts.suite import (
    ContractSuite,
    accumulation,
    assert_rows_stand_alone,
    dtype_of,
)
from deepinfer_core.testing.oracles import attention as oracle
from deepinfer_core.testing.tolerance import assert_within, roundoff

__all__ = ["PairCompressionContract"]

WIDTH = 64
RING = 7


class PairCompressionContract(ContractSuite):
    """Tests of ``CacheCodec.compress_pairs``."""

    def compress(
        self,
        component: CacheCodec,
        state: CachePages,
        value_TD: torch.Tensor,
        gate_TD: torch.Tensor,
        start: int,
        compute: str,
    ) -> torch.Tensor:
        """Feed a chunk of consecutive positions; the last ones that fit into the ring are kept."""
        rows = len(value_TD)
        position_T = torch.arange(start, start + rows)
        slot_T = torch.where(position_T >= start + rows - RING, position_T % RING, -1)
        latent = self.buffer(rows, value_TD.shape[1], dtype=dtype_of(compute))
        component.compress_pairs(
            value_TD,
            gate_TD,
            slot_T.to(self.device),
            ((position_T - 1) % RING).to(self.device),
            (torch.arange(rows) - 1).to(self.device),
            state,
            latent.tensor,
        )
        return latent.check()

    def ring(self, dtype: torch.dtype) -> CachePages:
        """State of one sequence."""
        name = str(dtype).removeprefix("torch.")
        return make_pages(self.device, name, 2 * WIDTH, pages=1, rows_per_page=RING)

    def test_a_pair_is_blended_channel_by_channel(
        self, component: CacheCodec, compute: str, generator: torch.Generator
    ) -> None:
        """Two exponentials, two products, a sum and a quotient: within 8 roundings."""
        dtype = accumulation(dtype_of(compute))
        value_TD = self.noise(generator, 12, WIDTH, dtype=dtype)
        gate_TD = 20 * self.noise(generator, 12, WIDTH, dtype=dtype)
        got = self.compress(component, self.ring(dtype), value_TD, gate_TD, 0, compute)
        for odd in range(1, 12, 2):
            pair = slice(odd - 1, odd + 1)
            want = oracle.blend_pair(value_TD[pair].cpu(), gate_TD[pair].cpu())
            size = value_TD[pair].cpu().double().abs().amax(0)
            # The argument of the exponential is off by u times its size, which is at most 200.
            error = (8 + 400) * roundoff(dtype) * size
            assert_within(got[odd], want, error + roundoff(dtype_of(compute)) * want.abs())

    @pytest.mark.parametrize("cut", [1, 2, 3, 6, 7, 8, 11])
    def test_a_pair_does_not_depend_on_how_the_prompt_is_cut(
        self, component: CacheCodec, compute: str, cut: int, generator: torch.Generator
    ) -> None:
        """Bit for bit, also where a chunk is longer than the ring that it reads and overwrites."""
        dtype = accumulation(dtype_of(compute))
        value_TD = self.noise(generator, 20, WIDTH, dtype=dtype)
        gate_TD = self.noise(generator, 20, WIDTH, dtype=dtype)
        whole, state = self.ring(dtype), self.ring(dtype)
        together = self.compress(component, whole, value_TD, gate_TD, 0, compute)
        parts = [
            self.compress(component, state, value_TD[:cut], gate_TD[:cut], 0, compute),
            self.compress(component, state, value_TD[cut:], gate_TD[cut:], cut, compute),
        ]
        assert_same_bits(torch.cat(parts)[1::2], together[1::2])
        assert_same_bits(state.data_PB, whole.data_PB)

    def test_the_state_keeps_gates_and_values_as_they_are(
        self, component: CacheCodec, compute: str, generator: torch.Generator
    ) -> None:
        """Gate first, then value; a row without a slot is not kept."""
        dtype = accumulation(dtype_of(compute))
        value_TD = self.noise(generator, 3, WIDTH, dtype=dtype)
        gate_TD = self.noise(generator, 3, WIDTH, dtype=dtype)
        state = self.ring(dtype)
        before = state.data_PB.clone()
        self.compress(component, state, value_TD, gate_TD, 0, compute)
        kept = self.buffer(3, 2 * WIDTH, dtype=dtype)
        component.load(state, torch.arange(3, device=self.device), kept.tensor)
        assert_same_bits(kept.check(), torch.cat((gate_TD, value_TD), 1))
        row_bytes = 2 * WIDTH * dtype.itemsize
        assert_same_bits(state.data_PB[:, 3 * row_bytes :], before[:, 3 * row_bytes :])

    def test_a_pair_does_not_depend_on_its_batch(
        self, component: CacheCodec, compute: str, generator: torch.Generator
    ) -> None:
        """Forty sequences, each with its partner in its own ring, in every number and order."""
        self.require(component.properties.batch_invariant, "batch invariance")
        dtype = accumulation(dtype_of(compute))
        state = make_pages(
            self.device, str(dtype).removeprefix("torch."), 2 * WIDTH, pages=40, rows_per_page=RING
        )
        first_TX = self.noise(generator, 40, 2 * WIDTH, dtype=dtype)
        component.store(first_TX, torch.arange(40, device=self.device) * RING, state)
        value_TD = self.noise(generator, 40, WIDTH, dtype=dtype)
        gate_TD = self.noise(generator, 40, WIDTH, dtype=dtype)

        def run(rows: torch.Tensor) -> list[torch.Tensor]:
            rows = rows.to(self.device)
            latent = self.buffer(len(rows), WIDTH, dtype=dtype_of(compute))
            alone = torch.full_like(rows, -1)
            component.compress_pairs(
                value_TD[rows],
                gate_TD[rows],
                rows * RING + 1,
                rows * RING,
                alone,
                state,
                latent.tensor,
            )
            return [latent.check()]

        assert_rows_stand_alone(run, 40, generator)
