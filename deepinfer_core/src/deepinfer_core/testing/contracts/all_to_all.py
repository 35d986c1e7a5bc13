"""Do rows reach their experts and come back as one sum in a fixed order?

Shapes: T rows, k experts a row, R dispatched rows, E experts, D width.
"""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch

from deepinfer_core.interfaces.all_to_all import AllToAll, Dispatched, ExchangeSpec
from deepinfer_core.interfaces.component import Plan
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.suite import (
    ContractSuite,
    accumulation,
    assert_rows_stand_alone,
    dtype_of,
)
from deepinfer_core.testing.host_waits import no_host_waits

__all__ = ["AllToAllContract"]

EXPERTS, CHOICES, WIDTH = 5, 3, 16


class AllToAllContract(ContractSuite):
    """Tests of ``AllToAll`` on one rank, which owns all experts.

    Attributes:
        alignments: row alignments to test.
    """

    alignments: ClassVar[tuple[int, ...]] = (1, 4)
    sweeps: ClassVar[dict[str, str]] = {**ContractSuite.sweeps, "alignment": "alignments"}

    def plan(self, component: AllToAll, compute: str, alignment: int) -> Plan:
        """A plan for five experts of width 16."""
        spec = ExchangeSpec(
            experts=EXPERTS,
            experts_per_row=CHOICES,
            width=WIDTH,
            row_alignment=alignment,
            compute=compute,
        )
        return component.plan(spec, 64)

    def choices(self, generator: torch.Generator, rows: int) -> torch.Tensor:
        """Distinct experts for each row, some of them absent."""
        order_TE = torch.rand(rows, EXPERTS, generator=generator).argsort(1)
        expert_Tk = order_TE[:, :CHOICES]
        absent_Tk = torch.rand(rows, CHOICES, generator=generator) < 0.2
        return expert_Tk.masked_fill(absent_Tk, -1)

    def weights(
        self, generator: torch.Generator, expert_Tk: torch.Tensor, dtype: torch.dtype
    ) -> torch.Tensor:
        """Random weights, 0 where there is no expert."""
        weight_Tk = torch.rand(expert_Tk.shape, generator=generator).to(dtype)
        return weight_Tk.masked_fill(expert_Tk < 0, 0).to(self.device)

    def received(self, sent: Dispatched) -> list[tuple[int, list[float], float]]:
        """Every row that an expert got, as (expert, values, weight)."""
        found, start = [], 0
        for expert, end in enumerate(sent.ends_E.tolist()):
            for row in range(start, end):
                values = sent.x_RD[row].cpu().double().tolist()
                found.append((expert, values, float(sent.weight_R[row])))
            start = end
        return found

    @pytest.mark.parametrize("rows", [0, 1, 33])
    def test_a_promise_of_graph_safety_means_that_nobody_waits(
        self, component: AllToAll, generator: torch.Generator, rows: int, alignment: int
    ) -> None:
        """Neither way reads a number of the device, or lets data decide a shape."""
        self.require(component.properties.graph_safe, "graph_safe")
        dtype = torch.float32
        x_TD = self.noise(generator, rows, WIDTH, dtype=dtype)
        expert_Tk = self.choices(generator, rows).to(self.device)
        weight_Tk = torch.ones(expert_Tk.shape, device=self.device)
        out_TD = torch.empty_like(x_TD)
        plan = self.plan(component, "float32", alignment)
        with no_host_waits() as watch:
            sent = component.dispatch(plan, x_TD, expert_Tk, weight_Tk)
            component.combine(plan, sent.x_RD, sent, out_TD)
        assert watch.seen

    @pytest.mark.parametrize("rows", [0, 1, 2, 33])
    def test_every_choice_arrives_once_at_its_expert(
        self,
        component: AllToAll,
        rows: int,
        compute: str,
        alignment: int,
        generator: torch.Generator,
    ) -> None:
        """Values unchanged, weights along; anything else that an expert sees weighs nothing."""
        dtype = dtype_of(compute)
        x_TD = self.noise(generator, rows, WIDTH, dtype=dtype)
        expert_Tk = self.choices(generator, rows)
        weight_Tk = self.weights(generator, expert_Tk, accumulation(dtype))
        plan = self.plan(component, compute, alignment)
        sent = component.dispatch(plan, x_TD, expert_Tk.to(self.device), weight_Tk)
        wanted = [
            (expert, x_TD[row].cpu().double().tolist(), float(weight_Tk[row, choice]))
            for row, experts in enumerate(expert_Tk.tolist())
            for choice, expert in enumerate(experts)
            if expert >= 0
        ]
        assert sorted(row for row in self.received(sent) if row[2] != 0) == sorted(wanted)

    def test_each_expert_starts_at_an_aligned_row(
        self, component: AllToAll, alignment: int, generator: torch.Generator
    ) -> None:
        """Ends never fall, and every start is a multiple."""
        expert_Tk = self.choices(generator, 33)
        plan = self.plan(component, "float32", alignment)
        x_TD = self.noise(generator, 33, WIDTH, dtype=torch.float32)
        weight_Tk = self.weights(generator, expert_Tk, torch.float32)
        sent = component.dispatch(plan, x_TD, expert_Tk.to(self.device), weight_Tk)
        ends = sent.ends_E.tolist()
        assert len(ends) == EXPERTS
        assert ends == sorted(ends)
        assert all(start % alignment == 0 for start in [0, *ends[:-1]])
        assert ends[-1] <= len(sent.x_RD)

    @pytest.mark.parametrize("choice", ["one expert", "nobody", "mixed"])
    def test_the_number_of_dispatched_rows_depends_on_shapes_only(
        self, component: AllToAll, choice: str, alignment: int, generator: torch.Generator
    ) -> None:
        """Otherwise no graph could be captured."""
        expert_Tk = self.choices(generator, 9)
        if choice != "mixed":
            expert_Tk = torch.full_like(expert_Tk, 2 if choice == "one expert" else -1)
        x_TD = self.noise(generator, 9, WIDTH, dtype=torch.float32)
        plan = self.plan(component, "float32", alignment)
        weight_Tk = self.weights(generator, expert_Tk, torch.float32)
        sent = component.dispatch(plan, x_TD, expert_Tk.to(self.device), weight_Tk)
        other_Tk = self.choices(generator, 9)
        weight_Tk = self.weights(generator, other_Tk, torch.float32)
        again = component.dispatch(plan, x_TD, other_Tk.to(self.device), weight_Tk)
        assert sent.x_RD.shape == again.x_RD.shape
        assert len(sent.weight_R) == len(sent.x_RD)

    @pytest.mark.parametrize("rows", [0, 1, 33])
    def test_results_are_summed_in_the_order_of_the_choices(
        self,
        component: AllToAll,
        rows: int,
        compute: str,
        alignment: int,
        generator: torch.Generator,
    ) -> None:
        """Bit for bit: the order of a sum of three numbers decides its rounding."""
        dtype = accumulation(dtype_of(compute))
        x_TD = self.noise(generator, rows, WIDTH, dtype=dtype_of(compute))
        expert_Tk = self.choices(generator, rows)
        weight_Tk = self.weights(generator, expert_Tk, dtype)
        plan = self.plan(component, compute, alignment)
        sent = component.dispatch(plan, x_TD, expert_Tk.to(self.device), weight_Tk)
        y_RD = _expert_results(sent, dtype)
        out = self.buffer(rows, WIDTH, dtype=dtype)
        component.combine(plan, y_RD, sent, out.tensor)
        want_TD = torch.zeros(rows, WIDTH, dtype=dtype)
        for row, experts in enumerate(expert_Tk.tolist()):
            for expert in experts:
                if expert >= 0:
                    want_TD[row] += x_TD[row].cpu().to(dtype) * _factor(expert)
        assert_same_bits(out.check().cpu(), want_TD)

    def test_a_row_does_not_depend_on_its_batch(
        self, component: AllToAll, compute: str, generator: torch.Generator
    ) -> None:
        """There and back, for every row count up to 40."""
        self.require(component.properties.batch_invariant, "batch invariance")
        dtype = accumulation(dtype_of(compute))
        x_TD = self.noise(generator, 40, WIDTH, dtype=dtype_of(compute))
        expert_Tk = self.choices(generator, 40).to(self.device)
        weight_Tk = self.weights(generator, expert_Tk.cpu(), dtype)
        plan = self.plan(component, compute, 1)

        def run(rows: torch.Tensor) -> list[torch.Tensor]:
            rows = rows.to(self.device)
            sent = component.dispatch(plan, x_TD[rows], expert_Tk[rows], weight_Tk[rows])
            out = self.buffer(len(rows), WIDTH, dtype=dtype)
            component.combine(plan, _expert_results(sent, dtype), sent, out.tensor)
            return [out.check()]

        assert_rows_stand_alone(run, 40, generator)


def _factor(expert: int) -> float:
    """What an expert multiplies by; a product has the same bits on every device, a quotient not."""
    return 0.3 * (expert + 1)


def _expert_results(sent: Dispatched, dtype: torch.dtype) -> torch.Tensor:
    """What experts return: rows times their factor; NaN behind the ends."""
    y_RD = torch.full(sent.x_RD.shape, torch.nan, dtype=dtype, device=sent.x_RD.device)
    start = 0
    for expert, end in enumerate(sent.ends_E.tolist()):
        y_RD[start:end] = sent.x_RD[start:end].to(dtype) * _factor(expert)
        start = end
    return y_RD
