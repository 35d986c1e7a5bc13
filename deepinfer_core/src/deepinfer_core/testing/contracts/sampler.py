"""Does a sampler keep the tokens it should, and report them as it should?

How a generator turns a seed into a number is a backend's own affair; that a token depends on its
own row only, and that many draws follow the law, is not.

Shapes: R rows, V vocabulary, A alternatives.
"""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
import torch

from deepinfer_core.interfaces.sampler import Sampler
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.sampler_draws import SamplerDrawsContract
from deepinfer_core.testing.contracts.sampler_rules import SamplerRulesContract
from deepinfer_core.testing.contracts.sampler_settings import Settings
from deepinfer_core.testing.contracts.sampler_suite import GOLDEN, TOLERANCE, SamplerSuite
from deepinfer_core.testing.oracles import sampling as oracle
from deepinfer_core.testing.tolerance import assert_within

__all__ = ["SamplerContract"]


class SamplerTokensContract(SamplerSuite):
    """Tests of truncation, masks and log-probabilities."""

    def test_temperature_zero_takes_the_largest_logit_and_the_lowest_of_equals(
        self, component: Sampler
    ) -> None:
        """Zero and minus zero are equal; truncations do not matter."""
        logits_RV = torch.tensor([[1.0, 3, 2, 3], [-0.0, 0.0, -1, -1], [-5, -5, -5, -5]])
        rows = self.rows([Settings(temperature=0, top_p=0.1, top_k=1, min_p=0.9)] * 3)
        out = self.sample(component, logits_RV, rows)
        assert out.token_R.tolist() == [1, 0, 0]
        assert out.processed_logprob_R.tolist() == [0, 0, 0]

    @pytest.mark.parametrize(
        ("settings", "kept"),
        [
            (Settings(top_p=0.6), {0, 1}),
            (Settings(top_p=0.5), {0}),
            (Settings(top_k=2), {0, 1}),
            (Settings(top_p=0.99, top_k=3), {0, 1, 2}),
            (Settings(), {0, 1, 2, 3}),
            (Settings(top_k=1), {0}),
            (Settings(top_k=4), {0, 1, 2, 3}),
            (Settings(top_k=5), {0, 1, 2, 3}),
            (Settings(min_p=0.36), {0, 1, 2}),
            (Settings(min_p=0.37), {0}),
            (Settings(temperature=2.0, min_p=0.36), {0, 1, 2, 3}),
        ],
    )
    def test_golden_logits_keep_their_golden_tokens(
        self, component: Sampler, settings: Settings, kept: set[int]
    ) -> None:
        """Logits 2, 1, 1, 0. In 400 draws each token of at least 7 % shows up: 0.93^400 = 2e-13."""
        assert set(self.draws(component, GOLDEN, settings, 400).tolist()) == kept

    @pytest.mark.parametrize(("top_p", "kept"), [(0.25, 2), (0.5, 3), (0.74, 3), (0.75, 4)])
    def test_mass_equal_to_top_p_keeps_one_more_token(
        self, component: Sampler, top_p: float, kept: int
    ) -> None:
        """Four equal tokens: the mass before each is an exact quarter."""
        drawn = self.draws(component, [0.0] * 4, Settings(top_p=top_p), 200)
        assert set(drawn.tolist()) == set(range(kept))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_log_probabilities_match_fp64(
        self, component: Sampler, dtype: torch.dtype, generator: torch.Generator
    ) -> None:
        """The raw one of the untouched logits, the processed one of what survives."""
        cases = [
            Settings(position=position, temperature=temperature, top_p=top_p, top_k=k, min_p=min_p)
            for position, (temperature, top_p, k, min_p) in enumerate(
                [
                    (1.0, 1.0, -1, 0.0),
                    (0.5, 0.75, -1, 0.0),
                    (2.0, 0.75, 5, 0.0),
                    (1.0, 1.0, 5, 0.125),
                    (1.0, 0.03125, -1, 0.0),
                    (4.0, 0.9375, 40, 0.015625),
                    (0.0625, 1.0, -1, 0.0),
                ]
            )
        ]
        logits_RV = 3 * torch.randn(len(cases), 40, generator=generator, dtype=dtype)
        out = self.sample(component, logits_RV, self.rows(cases))
        for row, case in enumerate(cases):
            logits, token = logits_RV[row].tolist(), int(out.token_R[row])
            kept = oracle.processed(logits, case.temperature, case.top_p, case.top_k, case.min_p)
            assert kept[token] > -math.inf
            want = torch.tensor(
                [oracle.log_softmax(logits)[token], kept[token]], dtype=torch.float64
            )
            got = torch.stack((out.logprob_R[row], out.processed_logprob_R[row]))
            assert_within(got, want, TOLERANCE)

    def test_alternatives_are_the_best_of_the_raw_law(self, component: Sampler) -> None:
        """Ties go to the lower id, whatever the temperature and the truncation."""
        logits_RV = torch.tensor([[0.0, 2, 1, 2, 1], [5.0, 5, 5, 5, 5]])
        rows = self.rows([Settings(temperature=0.1, top_k=1)] * 2)
        out = self.sample(component, logits_RV, rows, alternatives=4)
        assert out.top_token_RA.tolist() == [[1, 3, 2, 4], [0, 1, 2, 3]]
        for row in range(2):
            raw = oracle.log_softmax(logits_RV[row].tolist())
            want = torch.tensor(
                [raw[token] for token in out.top_token_RA[row].tolist()], dtype=torch.float64
            )
            assert_within(out.top_logprob_RA[row], want, TOLERANCE)

    def test_ties_at_the_edge_go_to_lower_ids(self, component: Sampler) -> None:
        """Forty equal logits behind one larger: more than an unstable sort keeps in order."""
        logits = [0.0] * 40
        logits[25] = 0.5
        drawn = self.draws(component, logits, Settings(top_k=4), 200)
        assert set(drawn.tolist()) == {25, 0, 1, 2}
        # The mass before id 2 is 9.0 %, before id 3 it is 11.4 %.
        drawn = self.draws(component, logits, Settings(top_p=0.1), 200)
        assert set(drawn.tolist()) == {25, 0, 1, 2}
        out = self.sample(component, torch.tensor([logits]), self.rows([Settings()]), 5)
        assert out.top_token_RA.tolist() == [[25, 0, 1, 2, 3]]

    def test_a_masked_token_is_never_drawn(self, component: Sampler) -> None:
        """Not by chance and not by temperature 0; the raw law does not know the mask."""
        logits = [10.0, 0.0, 1.0] + [0.0] * 40
        allowed = [1, 2, 31, 32, 42]
        drawn = self.draws(component, logits, Settings(), 400, allowed)
        assert set(drawn.tolist()) == set(allowed)
        rows = self.rows([Settings(temperature=0)], [allowed])
        out = self.sample(component, torch.tensor([logits]), rows)
        assert out.token_R.tolist() == [2]
        raw = torch.tensor([oracle.log_softmax(logits)[2]], dtype=torch.float64)
        assert_within(out.logprob_R, raw, TOLERANCE)

    def test_a_token_without_probability_is_never_drawn(self, component: Sampler) -> None:
        """Logits of -inf, first and last."""
        drawn = self.draws(component, [-math.inf, 0.0, 0.0, -math.inf], Settings(), 100)
        assert set(drawn.tolist()) == {1, 2}

    def test_a_forced_token_is_emitted_with_its_own_log_probabilities(
        self, component: Sampler
    ) -> None:
        """Minus infinity under the law that would have dropped it."""
        logits_RV = torch.tensor([GOLDEN] * 3)
        settings = [
            Settings(forced=3),
            Settings(forced=3, top_k=2),
            Settings(forced=0, temperature=0),
        ]
        out = self.sample(component, logits_RV, self.rows(settings))
        assert out.token_R.tolist() == [3, 3, 0]
        raw = oracle.log_softmax(GOLDEN)
        assert_within(
            out.logprob_R, torch.tensor([raw[3], raw[3], raw[0]], dtype=torch.float64), TOLERANCE
        )
        want = torch.tensor([raw[3], -math.inf, 0], dtype=torch.float64)
        assert_within(out.processed_logprob_R, want, TOLERANCE)

    def test_bad_rows_are_flagged_and_harm_no_other(
        self, component: Sampler, generator: torch.Generator
    ) -> None:
        """NaN, +inf, all -inf and an empty mask; the good rows keep their bits."""
        good_RV = torch.randn(6, 40, generator=generator)
        settings = [Settings(seed=row) for row in range(6)]
        allowed = [list(range(40))] * 6
        want = self.sample(component, good_RV, self.rows(settings, allowed), 2)
        bad_RV = good_RV.clone()
        bad_RV[1, 7], bad_RV[2, 39], bad_RV[4] = torch.nan, math.inf, -math.inf
        allowed[5] = []
        out = self.sample(component, bad_RV, self.rows(settings, allowed), 2)
        assert out.invalid_R.tolist() == [False, True, True, False, True, True]
        assert not bool(want.invalid_R.any())
        for field in fields(out):
            got_R, want_R = getattr(out, field.name), getattr(want, field.name)
            assert_same_bits(got_R[[0, 3]], want_R[[0, 3]])


class SamplerContract(SamplerTokensContract, SamplerRulesContract, SamplerDrawsContract):
    """All tests of ``Sampler``."""
