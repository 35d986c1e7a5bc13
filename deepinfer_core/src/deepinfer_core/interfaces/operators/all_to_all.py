"""For which shapes may a backend be asked to compile the operators of an exchange in one process?

Shapes: T rows, k experts a row, R = T * k dispatched rows, E experts, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ExchangeOrderSpec", "ExchangeRowsSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeOrderSpec:
    """Where each choice goes; arguments expert_Tk, row_Tk, choice_R, ends_E, all int64.

    Choices are ordered by expert, then by their index ``row * k + place``. ``row_Tk`` is the place
    of each in that order, ``choice_R`` the choice at each place; both are -1 for choices of expert
    -1, which come last. ``ends_E`` are the running ends of the experts.

    Attributes:
        experts: E.
        choices: k.
    """

    experts: int
    choices: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeRowsSpec:
    """Rows on their way to experts, or back.

    There: arguments x_TD, weight_Tk (fp32), choice_R, x_RD, weight_R; a place without a choice gets
    zeros. Back: arguments y_RD, row_Tk, out_TD (fp32); a row's results are added in the order of
    its experts, beginning with zero, and -1 adds nothing.

    Attributes:
        width: D.
        choices: k.
        dtype: name of the dtype of the rows.
    """

    width: int
    choices: int
    dtype: str
