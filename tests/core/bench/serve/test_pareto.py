"""Which loads stand on the frontier, and does a plot show them?"""

from pathlib import Path

import pytest
from deepinfer_core.bench.serve.pareto import Point, draw, frontier


def points(*pairs: tuple[float, float]) -> list[Point]:
    return [Point(label=f"{x}/{y}", user_speed=x, throughput=y) for x, y in pairs]


@pytest.mark.parametrize(
    ("all_pairs", "best"),
    [
        ([(1, 1)], [(1, 1)]),
        ([(1, 9), (2, 5), (3, 1)], [(1, 9), (2, 5), (3, 1)]),
        ([(1, 9), (2, 9), (3, 1)], [(2, 9), (3, 1)]),
        ([(1, 4), (2, 5), (2, 6), (3, 7)], [(3, 7)]),
        ([(2, 5), (2, 6)], [(2, 6)]),
    ],
)
def test_a_load_that_another_one_beats_is_left_out(
    all_pairs: list[tuple[float, float]], best: list[tuple[float, float]]
) -> None:
    assert frontier(points(*all_pairs)) == points(*best)


@pytest.mark.parametrize(
    ("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_a_plot_is_written_in_the_form_of_its_name(
    tmp_path: Path, suffix: str, start: bytes
) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'deepinfer-core[bench]' runs this")
    file = tmp_path / f"plot.{suffix}"
    draw(points((1, 2), (2, 1)), "title", file)
    assert file.read_bytes().startswith(start)


def test_a_plot_names_its_loads(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="pip install 'deepinfer-core[bench]'")
    matplotlib.rcParams["svg.fonttype"] = "none"
    draw(points((1, 2)), "all of it", tmp_path / "plot.svg")
    text = (tmp_path / "plot.svg").read_text()
    assert "1/2" in text
    assert "all of it" in text
