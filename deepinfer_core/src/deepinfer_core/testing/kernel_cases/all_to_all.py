"""Inputs of the exchange's operators, and what their twin makes of them.

Shapes: T rows, k experts a row, R = T * k dispatched rows, E experts, D width.
"""

from __future__ import annotations

import torch

from deepinfer_core.interfaces.all_to_all import Dispatched, ExchangeSpec
from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.operators.all_to_all import ExchangeOrderSpec, ExchangeRowsSpec
from deepinfer_core.reference.all_to_all import LocalExchange
from deepinfer_core.testing.kernel_cases.case import KernelCase, poisoned

__all__ = ["cases"]

Tensors = dict[str, torch.Tensor]

_TWIN = LocalExchange()
_EXPERTS = 384
"""Of the model; rows are sent to few of them."""

_ITEM_BYTES = {"bfloat16": 2, "float32": 4}


def cases() -> list[KernelCase]:
    """Choices with and without gaps, one expert alone, widths of odd vectors, the model's sizes."""
    orders = [
        _order("one-choice", rows=1, experts=1, choices=1),
        _order("few", rows=7, experts=5, choices=3),
        _order("gaps", rows=70, experts=9, choices=2, absent=0.3),
        _order("all-threads", rows=512, experts=9, choices=2, absent=0.3),
        _order("nobody", rows=3, experts=4, choices=2, absent=1.0),
        _order("one-expert", rows=67, experts=1, choices=1),
        _order("model-rows-64", rows=64, experts=384, choices=6, small=False),
        _order("model-rows-4096", rows=4096, experts=384, choices=6, small=False),
    ]
    rows = [
        make(name, rows=rows, choices=choices, width=width, absent=absent, dtype=dtype)
        for make in (_gather, _sum)
        for dtype in ("bfloat16", "float32")
        for name, rows, choices, width, absent in (
            ("wide", 9, 3, 320, 0.0),
            ("odd", 5, 2, 22, 0.3),
            ("one-row", 1, 1, 8, 0.0),
        )
    ]
    model = [
        make(f"model-rows-{rows}", rows=rows, choices=6, width=5120, dtype=dtype, small=False)
        for make, dtype in ((_gather, "bfloat16"), (_sum, "float32"))
        for rows in (64, 4096)
    ]
    return [*orders, *rows, *model]


def _choices(
    generator: torch.Generator, rows: int, experts: int, choices: int, absent: float
) -> torch.Tensor:
    """Distinct experts of each row, a share of them absent."""
    expert_Tk = torch.rand(rows, experts, generator=generator).argsort(1)[:, :choices]
    is_absent_Tk = torch.rand(rows, choices, generator=generator) < absent
    return expert_Tk.masked_fill(is_absent_Tk, -1).contiguous()


def _sent(expert_Tk: torch.Tensor, experts: int) -> Dispatched:
    """What the twin sends: as rows' weights, the choices themselves."""
    place = expert_Tk.device
    number_Tk = torch.arange(expert_Tk.numel(), dtype=torch.float64, device=place)
    number_Tk = number_Tk.view_as(expert_Tk)
    number_Tk = number_Tk.masked_fill(expert_Tk < 0, -1)
    plan = _plan(experts, expert_Tk.shape[1])
    return _TWIN.dispatch(plan, torch.zeros(len(expert_Tk), 1, device=place), expert_Tk, number_Tk)


def _plan(experts: int, choices: int) -> Plan:
    spec = ExchangeSpec(experts=experts, experts_per_row=choices, width=1, compute="float32")
    return _TWIN.plan(spec, 1)


def _order(
    name: str,
    *,
    rows: int,
    experts: int,
    choices: int,
    absent: float = 0.0,
    small: bool = True,
) -> KernelCase:
    def arguments(generator: torch.Generator) -> Tensors:
        return {
            "expert_Tk": _choices(generator, rows, experts, choices, absent),
            "row_Tk": poisoned(rows, choices, dtype=torch.int64),
            "choice_R": poisoned(rows * choices, dtype=torch.int64),
            "ends_E": poisoned(experts, dtype=torch.int64),
        }

    def expect(tensors: Tensors) -> Tensors:
        sent = _sent(tensors["expert_Tk"], experts)
        choice_R = sent.weight_R.to(torch.int64)
        return {"row_Tk": sent.handle, "choice_R": choice_R, "ends_E": sent.ends_E}

    return KernelCase(
        operator="all_to_all_order",
        name=name,
        spec=ExchangeOrderSpec(experts=experts, choices=choices),
        arguments=arguments,
        expect=expect,
        small=small,
        moved_bytes=0 if small else 8 * (3 * rows * choices + experts),
    )


def _gather(
    name: str,
    *,
    rows: int,
    choices: int,
    width: int,
    dtype: str,
    absent: float = 0.0,
    small: bool = True,
) -> KernelCase:
    form = getattr(torch, dtype)

    def arguments(generator: torch.Generator) -> Tensors:
        expert_Tk = _choices(generator, rows, _EXPERTS, choices, absent)
        return {
            "x_TD": torch.randn(rows, width, generator=generator).to(form),
            "weight_Tk": torch.rand(rows, choices, generator=generator),
            "choice_R": _sent(expert_Tk, _EXPERTS).weight_R.to(torch.int64),
            "x_RD": poisoned(rows * choices, width, dtype=form),
            "weight_R": poisoned(rows * choices, dtype=torch.float32),
        }

    def expect(tensors: Tensors) -> Tensors:
        choice_R = tensors["choice_R"]
        is_none_R, known_R = choice_R < 0, choice_R.clamp(min=0)
        x_RD = tensors["x_TD"][known_R // choices].masked_fill(is_none_R[:, None], 0)
        weight_R = tensors["weight_Tk"].flatten()[known_R].masked_fill(is_none_R, 0)
        return {"x_RD": x_RD, "weight_R": weight_R}

    moved_bytes = (1 + choices) * rows * width * _ITEM_BYTES[dtype] + 16 * rows * choices
    return KernelCase(
        operator="all_to_all_gather",
        name=f"{name}-{dtype}",
        spec=ExchangeRowsSpec(width=width, choices=choices, dtype=dtype),
        arguments=arguments,
        expect=expect,
        small=small,
        moved_bytes=0 if small else moved_bytes,
    )


def _sum(
    name: str,
    *,
    rows: int,
    choices: int,
    width: int,
    dtype: str,
    absent: float = 0.0,
    small: bool = True,
) -> KernelCase:
    form = getattr(torch, dtype)

    def arguments(generator: torch.Generator) -> Tensors:
        expert_Tk = _choices(generator, rows, _EXPERTS, choices, absent)
        return {
            "y_RD": torch.randn(rows * choices, width, generator=generator).to(form),
            "row_Tk": _sent(expert_Tk, _EXPERTS).handle,
            "out_TD": poisoned(rows, width, dtype=torch.float32),
        }

    def expect(tensors: Tensors) -> Tensors:
        y_RD, row_Tk, out_TD = tensors["y_RD"], tensors["row_Tk"], tensors["out_TD"]
        sent = Dispatched(x_RD=y_RD, weight_R=y_RD[:, 0], ends_E=row_Tk, handle=row_Tk)
        _TWIN.combine(_plan(_EXPERTS, choices), y_RD, sent, out_TD)
        return {"out_TD": out_TD}

    moved_bytes = rows * width * (choices * _ITEM_BYTES[dtype] + 4) + 8 * rows * choices
    return KernelCase(
        operator="all_to_all_sum",
        name=f"{name}-{dtype}",
        spec=ExchangeRowsSpec(width=width, choices=choices, dtype=dtype),
        arguments=arguments,
        expect=expect,
        small=small,
        moved_bytes=0 if small else moved_bytes,
    )
