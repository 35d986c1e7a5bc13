"""Do runs of row-wise operators give what their operators give, one after the other?

Where a run has a norm or an activation, on rows of which these are exact: nothing says in which
order a run adds up squares.

Shapes: T rows, S streams, D width, H heads, P rotated pairs, I expert width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.transform import Rounded, Transform
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.suite import accumulation, assert_rows_stand_alone, dtype_of
from deepinfer_core.testing.contracts.transform_suite import TransformSuite

__all__ = ["RunContract"]

_EPS = 1e-20
_FORMAT = "mxfp8"
_POOL = 70

Rows = dict[str, torch.Tensor]
Run = Callable[[Transform, type[Transform], Plan, Rows], list[torch.Tensor]]


def _norm_rounded(
    one: Transform, as_: type[Transform], plan: Plan, rows: Rows
) -> list[torch.Tensor]:
    rounded = _room(rows["x_TD"])
    as_.rms_norm_rounded(one, plan, rows["x_TD"], rows["weight_D"], _EPS, rounded)
    return [rounded.out_TD]


def _collapse_norm(
    one: Transform, as_: type[Transform], plan: Plan, rows: Rows
) -> list[torch.Tensor]:
    inputs = rows["trunk_TSD"], rows["pre_TS"], rows["weight_D"]
    rounded, plain_TD, alone_TD = (_room(rows["x_TD"]), *(_like(rows["x_TD"]) for _ in range(2)))
    as_.collapse_norm(one, plan, *inputs, _EPS, plain_TD, rounded)
    as_.collapse_norm(one, plan, *inputs, _EPS, alone_TD)
    return [plain_TD, rounded.out_TD, alone_TD]


def _expand_norm(
    one: Transform, as_: type[Transform], plan: Plan, rows: Rows
) -> list[torch.Tensor]:
    mixes = rows["pre_TS"], rows["comb_TSS"], rows["pre_TS"]
    rounded, plain_TD, alone_TD = (_room(rows["x_TD"]), *(_like(rows["x_TD"]) for _ in range(2)))
    out_TSD, in_place_TSD = _like(rows["trunk_TSD"]), rows["trunk_TSD"].clone()
    last = rows["weight_D"], _EPS
    as_.expand_norm(
        one, plan, rows["trunk_TSD"], rows["x_TD"], *mixes, *last, out_TSD, plain_TD, rounded
    )
    as_.expand_norm(one, plan, in_place_TSD, rows["x_TD"], *mixes, *last, in_place_TSD, alone_TD)
    return [out_TSD, plain_TD, rounded.out_TD, in_place_TSD, alone_TD]


def _norm_rope(one: Transform, as_: type[Transform], plan: Plan, rows: Rows) -> list[torch.Tensor]:
    norm = rows["x_TD"], rows["weight_D"], _EPS
    angles = rows["cosine_TP"], rows["sine_TP"]
    normed_TD, turned_TD, alone_TD = (_like(rows["x_TD"]) for _ in range(3))
    as_.norm_rope(one, plan, *norm, *angles, normed_TD, turned_TD)
    as_.norm_rope(one, plan, *norm, *angles, None, alone_TD)
    return [normed_TD, turned_TD, alone_TD]


def _rope_rounded(
    one: Transform, as_: type[Transform], plan: Plan, rows: Rows
) -> list[torch.Tensor]:
    angles = rows["cosine_TP"], rows["sine_TP"]
    found = []
    for inverse in (False, True):
        x_THD = rows["trunk_TSD"].clone()
        rounded = _room(x_THD.flatten(1))
        as_.rope_rounded(one, plan, x_THD, *angles, rounded, inverse=inverse)
        found.append(rounded.out_TD)
    return found


def _swiglu_rounded(
    one: Transform, as_: type[Transform], plan: Plan, rows: Rows
) -> list[torch.Tensor]:
    found = []
    for route_R in (rows["route_R"], None):
        rounded = _room(rows["gate_up_R2I"].chunk(2, -1)[0])
        as_.swiglu_rounded(one, plan, rows["gate_up_R2I"], route_R, 2.0**40, rounded)
        found.append(rounded.out_TD)
    return found


def _add_expand(one: Transform, as_: type[Transform], plan: Plan, rows: Rows) -> list[torch.Tensor]:
    out_TSD = rows["trunk_TSD"].clone()
    # The sum may take the place of the first.
    sums = rows["routed_TD"].clone(), rows["shared_TD"]
    as_.add_expand(one, plan, out_TSD, *sums, rows["pre_TS"], rows["comb_TSS"], out_TSD)
    return [out_TSD]


_RUNS: dict[str, Run] = {
    "rms_norm_rounded": _norm_rounded,
    "collapse_norm": _collapse_norm,
    "expand_norm": _expand_norm,
    "norm_rope": _norm_rope,
    "rope_rounded": _rope_rounded,
    "swiglu_rounded": _swiglu_rounded,
    "add_expand": _add_expand,
}


class RunContract(TransformSuite):
    """Tests of the runs."""

    def inputs(self, generator: torch.Generator, compute: str, *, is_exact: bool) -> Rows:
        """Noise, or rows whose norm is themselves and whose gates pass as they are."""
        dtype, wide, width = dtype_of(compute), accumulation(dtype_of(compute)), self.width
        trunk_TSD = self.noise(generator, _POOL, self.streams, width, dtype=dtype)
        x_TD = 3 * self.noise(generator, _POOL, width, dtype=dtype)
        pre_TS = self.noise(generator, _POOL, self.streams, dtype=wide)
        gate_TI, up_TI = (self.noise(generator, _POOL, width, dtype=wide) for _ in range(2))
        route_R = self.noise(generator, _POOL, dtype=wide)
        comb_TSS = self.noise(generator, _POOL, self.streams, self.streams, dtype=wide)
        if is_exact:
            x_TD = x_TD.sign()
            trunk_TSD = x_TD[:, None].repeat(1, self.streams, 1)
            # All streams are the row, and stay it: weights sum to one.
            pre_TS = torch.full_like(pre_TS, 1 / self.streams)
            comb_TSS = torch.full_like(comb_TSS, (1 - 1 / self.streams) / self.streams)
            gate_TI = torch.exp2(7 + gate_TI.abs().floor())
            up_TI = up_TI.to(torch.bfloat16).to(wide)
            route_R = torch.exp2(route_R.floor())
        angle_TP = torch.rand(_POOL, 8, generator=generator).to(self.device)
        return {
            "x_TD": x_TD,
            "trunk_TSD": trunk_TSD,
            "pre_TS": pre_TS,
            "comb_TSS": comb_TSS,
            "cosine_TP": angle_TP.cos(),
            "sine_TP": angle_TP.sin(),
            "gate_up_R2I": torch.cat((gate_TI, up_TI), -1),
            "route_R": route_R,
            "routed_TD": self.noise(generator, _POOL, width, dtype=wide),
            "shared_TD": self.noise(generator, _POOL, width, dtype=wide),
            "weight_D": self.noise(generator, width, dtype=torch.float32),
        }

    def test_a_run_gives_the_bits_of_its_operators(
        self, component: Transform, compute: str, generator: torch.Generator
    ) -> None:
        """One after the other, by the same component."""
        rows, plan = self.inputs(generator, compute, is_exact=True), self.plan(component, compute)
        for run in _RUNS.values():
            found, wanted = (
                run(component, as_, plan, rows) for as_ in (type(component), Transform)
            )
            for got, want in zip(found, wanted, strict=True):
                assert_same_bits(got, want)

    def test_a_row_of_a_run_stands_alone(
        self, component: Transform, compute: str, generator: torch.Generator
    ) -> None:
        """Whatever else is in the batch, and wherever the row is."""
        self.require(component.properties.batch_invariant, "batch_invariant")
        rows, plan = self.inputs(generator, compute, is_exact=False), self.plan(component, compute)

        def run(order: torch.Tensor) -> list[torch.Tensor]:
            there = order.to(self.device)
            taken = {key: x if key == "weight_D" else x[there] for key, x in rows.items()}
            found = [one(component, type(component), plan, taken) for one in _RUNS.values()]
            return [output for outputs in found for output in outputs]

        assert_rows_stand_alone(run, _POOL, generator, counts=self.row_counts)

    def test_a_run_of_no_rows_writes_nothing(self, component: Transform, compute: str) -> None:
        """And does not fail."""
        generator = torch.Generator()
        rows = self.inputs(generator, compute, is_exact=False)
        none = {key: x if key == "weight_D" else x[:0] for key, x in rows.items()}
        for run in _RUNS.values():
            assert all(
                output.shape[0] == 0
                for output in run(component, type(component), self.plan(component, compute), none)
            )


def _room(like_TD: torch.Tensor) -> Rounded:
    out_TD = torch.full(like_TD.shape, torch.nan, dtype=torch.bfloat16, device=like_TD.device)
    return Rounded(number_format=_FORMAT, out_TD=out_TD)


def _like(x_TD: torch.Tensor) -> torch.Tensor:
    return torch.full_like(x_TD, torch.nan)
