"""Mutations: each kind of mistake is made where it can be, and a good suite notices it."""

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import tilelang.language as T
import torch
from deepinfer_core.testing.tiles import EndlessLoop, Program
from deepinfer_core.testing.tiles.equivalence import is_equivalent
from deepinfer_core.testing.tiles.mutation_kinds import KINDS
from deepinfer_core.testing.tiles.mutations import mutants, mutate, sites
from deepinfer_core.testing.tiles.subjects import ProgramSubject
from deepinfer_core.testing.tiles.survey import caught_share, judge, survey

ROWS, WIDTH, TILE = 5, 24, 4


def scaled(redundant: bool = False) -> Any:
    """Rows times a scale and a factor, less an offset, limited and rounded; and their sums."""
    rows = T.dynamic("rows")

    @T.prim_func
    def kernel(
        x_TD: T.Tensor((rows, WIDTH), "float32"),
        scale_D: T.Tensor((WIDTH,), "float32"),
        out_TD: T.Tensor((rows, WIDTH), "float32"),
        sum_T: T.Tensor((rows,), "float32"),
    ):
        with T.Kernel(T.ceildiv(rows, TILE), threads=32) as block:
            tile = T.alloc_fragment((TILE, WIDTH), "float32")
            total = T.alloc_fragment((TILE,), "float32")
            T.copy(x_TD[block * TILE, 0], tile)
            for i, j in T.Parallel(TILE, WIDTH):
                if redundant:
                    if j < WIDTH:
                        tile[i, j] = tile[i, j] * scale_D[j] - 0.25
                else:
                    tile[i, j] = tile[i, j] * scale_D[j] - 0.25
            T.reduce_sum(tile, total, dim=1)
            for i, j in T.Parallel(TILE, WIDTH):
                if block * TILE + i < rows:
                    rounded = T.cast(T.cast(T.min(tile[i, j], 0.5), "bfloat16"), "float32")
                    out_TD[block * TILE + i, j] = rounded
            for i in T.Parallel(TILE):
                if block * TILE + i < rows:
                    sum_T[block * TILE + i] = total[i]

    return kernel


def subject(normal: Callable[..., torch.Tensor], watch: str = "everything") -> ProgramSubject:
    x, scale = normal(ROWS, WIDTH), normal(WIDTH)
    exact = x * scale - 0.25
    rounded = exact.clamp_max(0.5).bfloat16().float()

    def check(program: Program) -> list[str]:
        out, total = torch.full((ROWS, WIDTH), torch.nan), torch.full((ROWS,), torch.nan)
        program.run({"x_TD": x, "scale_D": scale, "out_TD": out, "sum_T": total}, limit_s=2)
        if watch == "nothing":
            return []
        wrong = [] if torch.equal(out, rounded) else ["out_TD"]
        # 24 numbers below 10 in magnitude: the sum's error is below 24 * 240 * 2^-24.
        right = torch.allclose(total, exact.sum(1), rtol=0, atol=4e-4)
        return wrong + ([] if right else ["sum_T"])

    return ProgramSubject(name="scaled", func=scaled(), check=check)


def test_a_kernel_without_mistakes_passes_its_own_check(
    normal: Callable[..., torch.Tensor],
) -> None:
    one = subject(normal)
    assert one.check(Program(one.func)) == []


EXPECTED = {
    "dropped condition", "index off by one", "swapped indices", "wrong stride", "missing clamp",
    "missing factor", "wrong constant", "missing term", "short loop", "swapped operands",
    "wrong comparison", "missing rounding", "missing statement", "wrong flag",
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(EXPECTED))
def test_every_mistake_of_a_kind_is_noticed(kind: str, normal: Callable[..., torch.Tensor]) -> None:
    assert set(KINDS) == EXPECTED
    one = subject(normal)
    places = [site for site in sites(one.func) if site.kind == kind]
    assert places
    outcomes = [judge(one, mutate(one.func, place)) for place in places]
    assert [str(outcome) for outcome in outcomes if outcome.verdict != "caught"] == []


def test_a_check_that_looks_at_nothing_lets_mistakes_survive(
    normal: Callable[..., torch.Tensor],
) -> None:
    careful = survey([subject(normal)], seed=7, count=20)
    careless = survey([subject(normal, watch="nothing")], seed=7, count=20)
    assert caught_share(careful) == 1.0
    assert caught_share(careless) < 0.9


def test_a_seed_decides_the_mutants() -> None:
    def first(seed: int) -> list[tuple[str, str, str]]:
        return [(m.kind, m.before, m.after) for m in islice(mutants(scaled(), seed), 10)]

    assert first(3) == first(3)
    assert first(3) != first(4)


def test_a_mutant_is_one_change_and_leaves_the_original_alone() -> None:
    func = scaled()
    text = func.script()
    for mutant in islice(mutants(func, 1), 10):
        assert mutant.func.script() != text
        assert mutant.before != mutant.after
    assert func.script() == text


def test_a_guard_that_is_provably_true_is_equivalent_to_none() -> None:
    func = scaled(redundant=True)
    guards = [site for site in sites(func) if site.kind == "dropped condition"]
    verdicts = [is_equivalent(func, mutate(func, site).func) for site in guards]
    assert sorted(verdicts) == [False, False, True]


def test_a_guard_on_threads_is_proved_from_the_launch() -> None:
    def kernel_with(width: int) -> Any:
        rows = T.dynamic("rows")

        @T.prim_func
        def kernel(out: T.Tensor((rows * width,), "float32")):
            with T.Kernel(T.ceildiv(rows * width, 128), threads=128) as block:
                index = block * 128 + T.get_thread_binding()
                if index < rows * width:
                    out[index] = 1.0

        return kernel

    for width, needless in ((640, True), (100, False)):
        func = kernel_with(width)
        guard = next(site for site in sites(func) if site.kind == "dropped condition")
        assert is_equivalent(func, mutate(func, guard).func) is needless


def test_a_program_that_does_not_end_is_caught() -> None:
    @T.prim_func
    def kernel(out: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=32) as _:
            count = T.alloc_var("int32", 0)
            while count >= 0:
                out[0] = count

    with pytest.raises(EndlessLoop, match="within the time"):
        Program(kernel).run({"out": torch.zeros(1, dtype=torch.int32)}, limit_s=0.05)
