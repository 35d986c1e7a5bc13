"""Which loads give the most throughput for the speed that a user sees?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Point", "draw", "frontier"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One load.

    Attributes:
        label: what is written beside it.
        user_speed: median of the tokens a second that users saw.
        throughput: output tokens a second of all users.
    """

    label: str
    user_speed: float
    throughput: float


def frontier(points: Sequence[Point]) -> list[Point]:
    """Those that no other one beats in one respect without losing in the other, by speed."""
    best: list[Point] = []
    for point in sorted(points, key=lambda one: (-one.user_speed, -one.throughput)):
        if not best or point.throughput > best[-1].throughput:
            best.append(point)
    return best[::-1]


def draw(points: Sequence[Point], title: str, file: Path) -> None:
    """Write a plot.

    Args:
        points: at least one.
        title: above it.
        file: its suffix says the format: png, svg, pdf.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: the format is none of matplotlib's.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    best = frontier(points)
    axes.plot(
        [one.user_speed for one in best], [one.throughput for one in best], color="tab:blue",
        label="best for its speed",
    )  # fmt: skip
    axes.scatter(
        [one.user_speed for one in points], [one.throughput for one in points], color="tab:blue"
    )
    for one in points:
        axes.annotate(
            one.label, (one.user_speed, one.throughput), xytext=(5, 5), textcoords="offset points"
        )
    axes.set_xlabel("speed of a user: output tokens/s, median")
    axes.set_ylabel("throughput: output tokens/s of all users")
    axes.set_title(title, fontsize="small", wrap=True)
    # Room for the labels beside the outermost points.
    axes.set_xlim(0, 1.2 * max(one.user_speed for one in points))
    axes.set_ylim(0, 1.15 * max(one.throughput for one in points))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file, dpi=150)
