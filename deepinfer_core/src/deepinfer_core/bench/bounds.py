"""In what time could this machine run a load at best?

Two things cannot be avoided: a step reads the weights it uses, and each row is multiplied with
them. Neither can be faster than this machine reads memory and multiplies matrices, measured in the
same run. The larger of the two times is the bound. It knows no attention, no drawing and no
scheduling, so an engine stays below it; how far below says what is left to gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepinfer_core.bench.figures import Reference
from deepinfer_core.bench.machine_rates import MachineRates
from deepinfer_core.bench.model_cost import ModelCost

__all__ = ["Bounds", "Work", "decode_work", "load_work", "prompt_work"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What cannot be avoided.

    Attributes:
        steps: fewest steps.
        rows: rows that pass the network.
        drawn: rows that pass the output head as well.
    """

    steps: int
    rows: int
    drawn: int


def load_work(fed_tokens: int, output_tokens: Sequence[int], batch_size: int) -> Work:
    """The work of a whole load.

    The last token of a request is drawn and not fed. A request draws at most one token a step,
    and so do at most ``batch_size`` requests together.

    Args:
        fed_tokens: prompt tokens of all requests that are computed.
        output_tokens: tokens drawn for each request.
        batch_size: requests that may run at once.
    """
    drawn = sum(output_tokens)
    steps = max(*output_tokens, -(-drawn // batch_size))
    return Work(steps=steps, rows=fed_tokens + drawn - len(output_tokens), drawn=drawn)


def prompt_work(prompt_tokens: int) -> Work:
    """The work behind a first token."""
    return Work(steps=1, rows=prompt_tokens, drawn=1)


def decode_work(sequences: int) -> Work:
    """The work of a step that draws a token for each of some sequences."""
    return Work(steps=1, rows=sequences, drawn=sequences)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """A model on a machine.

    Attributes:
        cost: of the model.
        rates: of the machine.
    """

    cost: ModelCost
    rates: MachineRates

    def least_s(self, work: Work) -> float:
        """The shortest time that the work can take."""
        return max(self._read_s(work), self._multiply_s(work))

    def time(self, work: Work) -> Reference:
        """The bound of a duration."""
        return Reference(kind="bound", name=self._name(work), value=self.least_s(work))

    def rate(self, amount: float, work: Work) -> Reference:
        """The bound of an amount a second."""
        return Reference(kind="bound", name=self._name(work), value=amount / self.least_s(work))

    def _read_s(self, work: Work) -> float:
        return work.steps * self.cost.step_bytes / self.rates.read_bytes_per_s

    def _multiply_s(self, work: Work) -> float:
        flops = work.rows * self.cost.row_flops + work.drawn * self.cost.head_flops
        return flops / self.rates.flops_per_s

    def _name(self, work: Work) -> str:
        if self._read_s(work) > self._multiply_s(work):
            rate = f"{self.rates.read_bytes_per_s / 1e9:.3g} GB/s"
            return f"reading the weights once a step, at the {rate} measured in this run"
        rate = f"{self.rates.flops_per_s / 1e9:.3g} GFLOP/s in {self.rates.matrix_dtype}"
        return f"multiplying each row with the weights, at the {rate} measured in this run"
