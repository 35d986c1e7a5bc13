"""Does every row draw for itself, anew for each seed and position, and by its law in the long run?

Shapes: R rows, V vocabulary, A alternatives.
"""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from deepinfer_core.interfaces.sampler import Sampler
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.sampler_settings import Settings
from deepinfer_core.testing.contracts.sampler_suite import SamplerSuite
from deepinfer_core.testing.contracts.suite import assert_rows_stand_alone
from deepinfer_core.testing.oracles import sampling as oracle

__all__ = ["SamplerDrawsContract"]


class SamplerDrawsContract(SamplerSuite):
    """Tests of randomness."""

    @pytest.mark.parametrize("vocabulary", [50, 33000])
    def test_a_token_depends_on_its_own_row_only(
        self, component: Sampler, vocabulary: int, generator: torch.Generator
    ) -> None:
        """Every row count, in every place, greedy and drawn rows mixed."""
        self.require(component.properties.batch_invariant, "batch invariance")
        count = 20 if vocabulary < 1000 else 3
        logits_RV = 2 * torch.randn(count, vocabulary, generator=generator)
        settings = [
            Settings(seed=row, position=row % 5, temperature=row % 3, top_p=0.9 if row % 2 else 1)
            for row in range(count)
        ]

        def run(order: torch.Tensor) -> list[torch.Tensor]:
            rows = self.rows([settings[row] for row in order.tolist()])
            out = self.sample(component, logits_RV[order], rows, 3)
            return [getattr(out, field.name) for field in fields(out)]

        many = (129,) if vocabulary < 1000 else ()
        assert_rows_stand_alone(run, count, generator, many=many)

    @pytest.mark.parametrize(
        ("seed_step", "position_step"),
        [(1, 0), (1 << 32, 0), (0, 1), (0, 1024), (1, -1)],
    )
    def test_another_seed_or_position_draws_anew(
        self, component: Sampler, seed_step: int, position_step: int
    ) -> None:
        """64 draws among 1000 equal tokens repeat each other hardly ever: expect 62 distinct.

        All bits of a seed count, and a seed that grows while the position falls is another draw.
        """
        settings = [
            Settings(seed=5 + step * seed_step, position=65536 + step * position_step)
            for step in range(64)
        ]
        out = self.sample(component, torch.zeros(64, 1000), self.rows(settings))
        assert len(set(out.token_R.tolist())) > 50
        again = self.sample(component, torch.zeros(64, 1000), self.rows(settings))
        assert_same_bits(again.token_R, out.token_R)

    def test_draws_are_fine_enough_for_a_large_vocabulary(self, component: Sampler) -> None:
        """400 draws among 8192 equal tokens: expect 390 distinct, and 202 from 256 levels."""
        settings = [Settings(position=position) for position in range(400)]
        out = self.sample(component, torch.zeros(400, 8192), self.rows(settings))
        assert len(set(out.token_R.tolist())) > 370

    @pytest.mark.parametrize(
        "settings",
        [
            Settings(seed=11),
            Settings(seed=12, temperature=2.0),
            Settings(seed=13, top_p=0.9),
            Settings(seed=-1, top_k=5, min_p=0.05),
        ],
    )
    def test_many_draws_follow_the_law(self, component: Sampler, settings: Settings) -> None:
        """Chi-square of 20 000 draws, refused at 1e-3; fixed seeds make the result fixed."""
        logits = [0.0, 1.5, -1.0, 0.5, 1.5, -2.0, 1.0, 0.25]
        drawn = self.draws(component, logits, settings, 20_000)
        law = oracle.processed(
            logits, settings.temperature, settings.top_p, settings.top_k, settings.min_p
        )
        count_V = torch.bincount(drawn, minlength=len(logits)).double()
        want_V = 20_000 * torch.tensor(law, dtype=torch.float64).exp()
        kept_V = want_V > 0
        assert not bool(count_V[~kept_V].any())
        chi_square = ((count_V - want_V)[kept_V] ** 2 / want_V[kept_V]).sum()
        freedom = kept_V.sum().double() - 1
        assert float(torch.special.gammaincc(freedom / 2, chi_square / 2)) > 1e-3
