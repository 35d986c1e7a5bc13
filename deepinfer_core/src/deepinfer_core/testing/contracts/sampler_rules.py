"""Does a sampler mask, bias and penalise logits in the order that the interface names?

Shapes: R rows, V vocabulary.
"""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch

from deepinfer_core.interfaces.sampler import Sampler
from deepinfer_core.testing.contracts.sampler_settings import Settings
from deepinfer_core.testing.contracts.sampler_suite import GOLDEN, TOLERANCE, SamplerSuite
from deepinfer_core.testing.contracts.suite import assert_rows_stand_alone
from deepinfer_core.testing.oracles import sampling as oracle
from deepinfer_core.testing.tolerance import assert_within

__all__ = ["SamplerRulesContract"]


class SamplerRulesContract(SamplerSuite):
    """Tests of masks, biases and penalties."""

    @pytest.mark.parametrize(
        ("settings", "want"),
        [
            (Settings(bias={1: 2.5, 3: -1.0}), [4.0, 1.5, -3.0, -1.0]),
            (Settings(bias={2: -0.5, 1: 8.0, 0: -1.0}), [3.0, 7.0, -3.5, 0.0]),
            # Division above zero, multiplication below; a token seen in the prompt counts.
            (Settings(seen={0: 0, 2: 3}, repetition=2.0), [2.0, -1.0, -6.0, 0.0]),
            (Settings(seen={1: 1, 3: 1}, repetition=0.5), [4.0, -0.5, -3.0, 0.0]),
            # The output alone counts, each time or once.
            (Settings(seen={0: 0, 1: 1, 2: 3}, frequency=0.5), [4.0, -1.5, -4.5, 0.0]),
            (Settings(seen={0: 0, 1: 1, 2: 3}, presence=0.5), [4.0, -1.5, -3.5, 0.0]),
            (Settings(seen={0: 2}, frequency=-1.0, presence=-0.5), [6.5, -1.0, -3.0, 0.0]),
            # Bias, then repetition: (-1 + 3) / 2. Repetition, then the others: 4 / 2 - 1 - 0.25.
            (Settings(bias={1: 3.0}, seen={1: 0}, repetition=2.0), [4.0, 1.0, -3.0, 0.0]),
            (
                Settings(seen={0: 2, 3: 1}, repetition=2.0, frequency=0.5, presence=0.25),
                [0.75, -1.0, -3.0, -0.75],
            ),
        ],
    )
    @pytest.mark.parametrize("temperature", [1.0, 0.5])
    def test_bias_and_penalties_change_the_law_as_computed_by_hand(
        self, component: Sampler, settings: Settings, want: list[float], temperature: float
    ) -> None:
        """Logits 4, -1, -3, 0, before temperature; the raw law stays what it was."""
        logits = [4.0, -1.0, -3.0, 0.0]
        rows = [replace(settings, forced=token, temperature=temperature) for token in range(4)]
        out = self.sample(component, torch.tensor([logits] * 4), self.rows(rows))
        law = torch.tensor(oracle.log_softmax([x / temperature for x in want]), dtype=torch.float64)
        assert_within(out.processed_logprob_R, law, TOLERANCE)
        raw = torch.tensor(oracle.log_softmax(logits), dtype=torch.float64)
        assert_within(out.logprob_R, raw, TOLERANCE)

    def test_temperature_zero_and_truncation_follow_the_adjusted_logits(
        self, component: Sampler
    ) -> None:
        """Alternatives follow the model's own law."""
        settings = Settings(temperature=0, bias={3: 1.5}, seen={0: 1}, presence=2.0)
        rows = self.rows([settings, replace(settings, temperature=1.0, top_k=1)])
        out = self.sample(component, torch.tensor([GOLDEN] * 2), rows, alternatives=2)
        assert out.token_R.tolist() == [3, 3]
        assert out.top_token_RA.tolist() == [[0, 1], [0, 1]]

    def test_no_bias_brings_a_masked_token_back(self, component: Sampler) -> None:
        """Nor does a penalty that rewards."""
        settings = Settings(bias={0: 100.0}, seen={0: 3}, repetition=0.5, frequency=-2.0)
        drawn = self.draws(component, GOLDEN, settings, 200, allowed=[1, 2, 3])
        assert set(drawn.tolist()) == {1, 2, 3}

    def test_bias_and_penalties_of_a_row_do_not_depend_on_its_neighbours(
        self, component: Sampler, generator: torch.Generator
    ) -> None:
        """Rows with long lists, short ones and none, each in every place."""
        self.require(component.properties.batch_invariant, "batch invariance")
        count, logits_RV = 12, torch.randn(12, 50, generator=generator)
        settings = [
            Settings(
                seed=row,
                bias={(7 * place + row) % 50: place - 2.5 for place in range(row % 4)},
                seen={(3 * place + row) % 50: place % 3 for place in range(5 * (row % 3))},
                repetition=1.25,
                frequency=0.375,
                presence=0.1,
            )
            for row in range(count)
        ]

        def run(order: torch.Tensor) -> list[torch.Tensor]:
            rows = self.rows([settings[row] for row in order.tolist()])
            out = self.sample(component, logits_RV[order], rows, 3)
            return [getattr(out, field.name) for field in fields(out)]

        assert_rows_stand_alone(run, count, generator)
        out = run(torch.arange(count))
        for row, case in enumerate(settings):
            logits = oracle.adjusted(
                logits_RV[row].tolist(),
                bias=case.bias,
                seen=case.seen,
                repetition=case.repetition,
                frequency=case.frequency,
                presence=float(torch.tensor(case.presence)),  # rounded to fp32
            )
            want = oracle.log_softmax(logits)[int(out[0][row])]
            assert_within(out[2][row], torch.tensor(want, dtype=torch.float64), TOLERANCE)
