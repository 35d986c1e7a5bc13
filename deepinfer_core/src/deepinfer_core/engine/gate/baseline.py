"""What does the gate remember of a measurement?

Likelihoods of every position, in all their bits, and everything that decides whether bits of two
measurements may be compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from deepinfer_core.engine.gate.conditions import Rounding
from deepinfer_core.engine.gate.texts import Selection

__all__ = [
    "TOLERANCES",
    "Baseline",
    "ConditionScores",
    "Measurement",
    "Platform",
    "Refresh",
    "SampleScore",
    "Tolerance",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """What decides the order of additions, besides the program.

    Attributes:
        machine: architecture, e.g. ``x86_64``.
        processor: of a CPU the first word of its name, since a BLAS chooses its products by maker;
            of another device the whole name.
        instruction_sets: those that choose kernels, sorted; of another device than a CPU its
            capability.
        vector: instruction set that torch's own kernels use on a CPU, e.g. ``AVX512``.
        torch: version, with its build.
        compiler: what makes kernels of the device, with versions; empty if nothing does.
    """

    machine: str
    processor: str
    instruction_sets: tuple[str, ...]
    vector: str
    torch: str
    compiler: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleScore:
    """How well one text was predicted.

    Attributes:
        id: of the sample.
        nats: negative log-likelihood of each scored token, in nats, fp64: all behind the beginning.
        first: place in the text of the first of them.
    """

    id: str
    nats: tuple[float, ...]
    first: int = 1

    @property
    def nll_sum(self) -> float:
        """Sum of ``nats``, correctly rounded, so that it depends on no order."""
        return math.fsum(self.nats)

    @property
    def ppl(self) -> float:
        """Perplexity: exp of the mean of ``nats``."""
        return math.exp(self.nll_sum / len(self.nats))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionScores:
    """What was measured under one condition.

    Attributes:
        checkpoint: fingerprint, all data included.
        tokenizer: SHA-256 of ``tokenizer.json``.
        arithmetic: equal for conditions that must agree in every bit.
        rounding: which tolerance holds between unlike platforms.
        components: name of the component in each slot.
        samples: in the order of the texts.
    """

    checkpoint: str
    tokenizer: str
    arithmetic: str
    rounding: Rounding
    components: Mapping[str, str]
    samples: tuple[SampleScore, ...]

    @property
    def nll_sum(self) -> float:
        """Sum over all samples in nats."""
        return math.fsum(nat for sample in self.samples for nat in sample.nats)

    @property
    def ppl(self) -> float:
        """Perplexity over all samples together."""
        return math.exp(self.nll_sum / sum(len(sample.nats) for sample in self.samples))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One run of the gate.

    Attributes:
        platform: where it ran.
        selection: the texts.
        conditions: scores by name of the condition.
    """

    platform: Platform
    selection: Selection
    conditions: Mapping[str, ConditionScores]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far sums may be apart that were added up in different orders.

    Roundings of one position have little to do with those of another, so the relative difference of
    a sum falls with the root of the number of likelihoods in it: it may be at most this number
    divided by that root.

    Attributes:
        sample: of the ``nll_sum`` of a sample.
        total: of a condition.
        why: derivation.
    """

    sample: float
    total: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refresh:
    """One deliberate change of the baseline.

    Attributes:
        reason: given by whoever refreshed.
        commit: of the checkout; empty outside one.
    """

    reason: str
    commit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The file.

    Attributes:
        measurement: what holds.
        tolerances: by rounding, for other platforms than the one measured on.
        history: all refreshes, the last one at the end.
    """

    measurement: Measurement
    tolerances: Mapping[Rounding, Tolerance]
    history: tuple[Refresh, ...]


TOLERANCES: Mapping[Rounding, Tolerance] = MappingProxyType(
    {
        "plain": Tolerance(
            sample=1.2e-5,
            total=5e-6,
            why="fp32 sums in another order. Measured on the tiny checkpoint and one AMD processor"
            " with AVX-512, times the root of the number of tokens: torch's kernels for baseline"
            " instructions and MKL's COMPATIBLE branch moved a sample by at most 2.5e-6 and all"
            " samples by 2.3e-7; core.cpu is up to 3.0e-6 and 1.5e-6 from core.reference. Four and"
            " three times that: 1e-6 for a sample of 143 tokens, 1.2e-7 for 12 of them.",
        ),
        "quantised": Tolerance(
            sample=0.45,
            total=0.2,
            why="a sum that differs in its last bit falls to the other side of a rounding border"
            " now and then, which moves a value by a step of bf16, e4m3 or e2m1, and sometimes"
            " another expert or entry is chosen. Measured in the same way: up to 0.15 for a sample"
            " and 0.054 for all, without direction; three and nearly four times that: 3.8e-2 for a"
            " sample of 143 tokens, 4.8e-3 for 12 of them. Only the plain conditions are sharp"
            " between unlike platforms.",
        ),
    }
)
"""What a first baseline records; later ones keep what their file says."""
