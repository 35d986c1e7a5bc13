"""How do the curves of ``cache_traces`` look?"""

from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["draw"]

_GB = 1e9


def draw(
    file: Path,
    *,
    ideal: float,
    by_room: Mapping[int, float],
    by_time: Mapping[float, float],
    by_class: Mapping[tuple[float, float], float],
) -> None:
    """Three plots beside each other.

    Args:
        file: its suffix says the format.
        ideal: share of tokens that a store could save at most.
        by_room: shares by bytes of capacity.
        by_time: shares by seconds of retention.
        by_class: shares of chats by width of pauses and days of retention.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    room, time, classes = figure.subplots(1, 3)
    room.plot([size / _GB for size in by_room], _percent(by_room.values()), marker="o")
    room.set_xscale("log")
    room.set_xlabel("capacity in GB")
    room.set_title("public trace, one hour of chats", fontsize="medium")
    time.plot([kept_s / 60 for kept_s in by_time], _percent(by_time.values()), marker="o")
    time.set_xscale("log")
    time.set_xlabel("minutes behind the last use")
    time.set_title("the same, by retention", fontsize="medium")
    for axes in (room, time):
        axes.axhline(100 * ideal, color="tab:gray", linestyle="--", label="ideal")
        axes.set_ylim(0, 110 * ideal)
        axes.set_ylabel("prompt tokens from the store, %")
        axes.legend(loc="lower right")
    for sigma in sorted({sigma for sigma, _ in by_class}):
        points = {days: share for (width, days), share in by_class.items() if width == sigma}
        classes.plot(list(points), _percent(points.values()), marker="o", label=f"sigma {sigma:g}")
    classes.set_xscale("log")
    classes.set_xlabel("days that chats are kept; agents 3")
    classes.set_ylabel("prompt tokens of chats from the store, %")
    classes.set_title("synthetic sessions, four weeks", fontsize="medium")
    classes.legend(loc="lower right")
    for axes in (room, time, classes):
        axes.grid(alpha=0.3, which="both")
    # The same bytes for the same figures.
    with matplotlib.rc_context({"svg.hashsalt": "cache_traces"}):
        figure.savefig(file, dpi=150, metadata={"Date": None} if file.suffix == ".svg" else None)


def _percent(shares: Iterable[float]) -> list[float]:
    return [100 * share for share in shares]
