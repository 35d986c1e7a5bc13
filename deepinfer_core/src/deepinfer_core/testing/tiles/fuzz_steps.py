"""Which steps can a random kernel have?

Each draws its constants from the generator and gives text and meaning together. After each, numbers
are integers of at most 15 in magnitude again.
"""

import random
from collections.abc import Callable

import numpy as np

from deepinfer_core.testing.tiles.fuzz import LIMIT, TILE, WIDTH, Array, State, Step

__all__ = ["STEPS"]

PARALLEL = f"for i, j in T.Parallel({TILE}, {WIDTH}):"
BOUND = f"T.clamp({{}}, -{LIMIT}, {LIMIT})"


def bounded(values: Array) -> Array:
    return np.clip(values, -LIMIT, LIMIT).astype(np.float32)


def over(expression: str, *before: str) -> tuple[str, ...]:
    """Lines that set every element of ``a``."""
    return (*before, PARALLEL, "    a[i, j] = " + BOUND.format(expression))


def element(generator: random.Random) -> Step:
    """Arithmetic of two tiles."""
    scale = generator.choice([-2, -1, 1, 2, 3])
    shift = generator.randint(-5, 5)
    forms: list[tuple[str, Callable[[Array, Array], Array]]] = [
        (f"a[i, j] * {scale}.0 + b[i, j]", lambda a, b: a * scale + b),
        (f"a[i, j] * b[i, j] - {shift}.0", lambda a, b: a * b - shift),
        (f"T.max(a[i, j], b[i, j] + {shift}.0)", lambda a, b: np.maximum(a, b + shift)),
        ("T.abs(a[i, j]) - T.min(b[i, j], 3.0)", lambda a, b: np.abs(a) - np.minimum(b, 3)),
        (
            f"T.if_then_else(a[i, j] > {shift}.0, b[i, j], -a[i, j])",
            lambda a, b: np.where(a > shift, b, -a),
        ),
    ]
    text, compute = generator.choice(forms)

    def apply(state: State) -> None:
        state["a"] = bounded(compute(state["a"], state["b"]))

    return Step(lines=over(text), apply=apply)


def integer(generator: random.Random) -> Step:
    """Bits of the numbers as integers."""
    bits, count = generator.randint(1, 30), generator.randint(1, 2)
    text = f"T.cast((T.cast(a[i, j], 'int32') ^ {bits}) >> {count}, 'float32')"

    def apply(state: State) -> None:
        state["a"] = bounded((state["a"].astype(np.int32) ^ bits) >> count)

    return Step(lines=over(text), apply=apply)


def rounded(generator: random.Random) -> Step:
    """Through a narrow format and back; eighths make it round."""
    name = generator.choice(["float8_e4m3fn", "float8_e5m2", "bfloat16"])
    text = f"T.cast(T.cast(a[i, j] * 1.125, '{name}'), 'float32') * 8.0"
    text = f"T.floor(({text}) / 8.0)"

    def apply(state: State) -> None:
        import ml_dtypes

        narrow = (state["a"] * np.float32(1.125)).astype(getattr(ml_dtypes, name))
        state["a"] = bounded(np.floor(narrow.astype(np.float32)))

    return Step(lines=over(text), apply=apply)


def reduced(generator: random.Random) -> Step:
    """A reduction of each row, used by the row."""
    kinds: dict[str, Callable[[Array], Array]] = {
        "max": lambda a: a.max(1),
        "min": lambda a: a.min(1),
        "sum": lambda a: a.sum(1),
        "absmax": lambda a: np.abs(a).max(1),
    }
    kind = generator.choice(sorted(kinds))

    def apply(state: State) -> None:
        if len(state["a"]):
            state["a"] = bounded(state["a"] - kinds[kind](state["a"])[:, None])

    return Step(lines=over("a[i, j] - s[i]", f"T.reduce_{kind}(a, s, dim=1)"), apply=apply)


def moved(generator: random.Random) -> Step:
    """Columns of the shared tile in another order."""
    step, shift = generator.choice([1, 3, 5, 7]), generator.randint(0, 63)
    text = f"a[i, j] - held[i, (j * {step} + {shift}) % {WIDTH}]"

    def apply(state: State) -> None:
        order = (np.arange(WIDTH) * step + shift) % WIDTH
        state["a"] = bounded(state["a"] - state["a"][:, order])

    return Step(lines=over(text, "T.copy(a, held)"), apply=apply)


def running(generator: random.Random) -> Step:
    """A running sum along the row, from either end."""
    backwards = generator.random() < 0.5
    lines = ("T.copy(a, held)", f"T.cumsum(held, dim=1, reverse={backwards})")

    def apply(state: State) -> None:
        a = state["a"][:, ::-1] if backwards else state["a"]
        total = np.cumsum(a, axis=1)
        state["a"] = bounded(total[:, ::-1] if backwards else total)

    return Step(lines=over("held[i, j]", *lines), apply=apply)


def looped(generator: random.Random) -> Step:
    """A serial sum over neighbours, with a condition."""
    count, parity = generator.randint(1, 5), generator.randint(0, 1)
    lines = (
        "T.copy(a, held)",
        f"for k in T.serial({count}):",
        f"    for i, j in T.Parallel({TILE}, {WIDTH}):",
        f"        if (i + j + k) % 2 == {parity}:",
        f"            a[i, j] = a[i, j] + held[i, (j + k) % {WIDTH}]",
    )

    def apply(state: State) -> None:
        held, a = state["a"], state["a"].copy()
        # A row's place in its tile decides: tiles are of even height.
        row, column = np.indices(a.shape)
        for k in range(count):
            neighbour = held[:, (np.arange(WIDTH) + k) % WIDTH]
            a = np.where((row + column + k) % 2 == parity, a + neighbour, a)
        state["a"] = bounded(a)

    return Step(lines=(*lines, *over("a[i, j]")), apply=apply)


def gathered(generator: random.Random) -> Step:
    """A row of the input chosen by index, or nothing."""
    row = f"block * {TILE} + i"
    clamped = f"T.min({row}, rows - 1)"
    text = (
        f"a[i, j] + T.if_then_else(index_T[{clamped}] >= 0, "
        f"x_TD[T.max(index_T[{clamped}], 0), j], 1.0)"
    )

    def apply(state: State) -> None:
        index, x = state["index"], state["x"]
        chosen = x[np.maximum(index, 0)] if len(x) else x
        state["a"] = bounded(state["a"] + np.where(index[:, None] >= 0, chosen, np.float32(1)))

    return Step(lines=over(text), apply=apply)


def multiplied(generator: random.Random) -> Step:
    """A product of the tile with a square of ones and zeros."""
    modulus = generator.choice([3, 5, 7])
    lines = (
        f"for p, q in T.Parallel({WIDTH}, {WIDTH}):",
        f"    square[p, q] = T.if_then_else((p + q * 2) % {modulus} == 0, "
        "T.cast(1.0, 'bfloat16'), T.cast(0.0, 'bfloat16'))",
        PARALLEL,
        "    half[i, j] = T.cast(a[i, j], 'bfloat16')",
        "T.gemm(half, square, b, clear_accum=True)",
        PARALLEL,
        "    b[i, j] = " + BOUND.format("b[i, j]"),
    )

    def apply(state: State) -> None:
        row, column = np.indices((WIDTH, WIDTH))
        square = ((row + column * 2) % modulus == 0).astype(np.float32)
        state["b"] = bounded(state["a"] @ square)

    return Step(lines=(*lines, *over("a[i, j] - b[i, j]")), apply=subtract_after(apply))


def subtract_after(apply: Callable[[State], None]) -> Callable[[State], None]:
    def both(state: State) -> None:
        apply(state)
        state["a"] = bounded(state["a"] - state["b"])

    return both


def counted(generator: random.Random) -> Step:
    """A histogram of the numbers, by atomics."""
    lines = (
        PARALLEL,
        f"    if block * {TILE} + i < rows:",
        "        T.atomic_add(count_B[T.cast(a[i, j], 'int32') + 16], 1)",
    )

    def apply(state: State) -> None:
        numbers = state["a"].astype(np.int32).ravel() + 16
        state["count"] = state["count"] + np.bincount(numbers, minlength=32).astype(np.int32)

    return Step(lines=lines, apply=apply)


STEPS = [
    element, element, integer, rounded, reduced, moved, running, looped, gathered, multiplied,
    counted,
]  # fmt: skip
"""Every kind of step; arithmetic is drawn twice as often."""
