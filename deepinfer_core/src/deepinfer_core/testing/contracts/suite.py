"""What do all contract suites share?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import pytest
import torch

from deepinfer_core.interfaces.component import Component, Promise
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.seeds import seed_of

__all__ = ["ContractSuite", "GuardedBuffer", "accumulation", "assert_rows_stand_alone", "dtype_of"]

MANY_ROWS = (127, 128, 129, 257)
"""Around the row tiles of 128 that kernels for prompts use, and one beyond two of them."""

_GUARD_ELEMENTS = 64
_GUARD_BYTE = 0xA5


class ContractSuite:
    """Sweeps over class attributes, seeded data and the promises.

    Attributes:
        device: where tensors live.
        compute_dtypes: dtypes of activations to test.
        sweeps: which class attribute a test argument takes its values from.
        row_counts: batches, in rows, in which a row must keep its bits; None: all up to a bound.
            For components that are slow where they are tested.
    """

    device: ClassVar[str] = "cpu"
    compute_dtypes: ClassVar[tuple[str, ...]] = ("bfloat16", "float32", "float64")
    sweeps: ClassVar[dict[str, str]] = {"compute": "compute_dtypes"}
    row_counts: ClassVar[tuple[int, ...] | None] = None

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run a test once for each value of the attributes that its arguments name."""
        for argument, attribute in self.sweeps.items():
            if argument in metafunc.fixturenames:
                metafunc.parametrize(argument, getattr(self, attribute))

    @pytest.fixture
    def component(self) -> Component:
        """The component under test; each subclass provides it."""
        raise NotImplementedError(f"{type(self).__name__} must define the fixture 'component'")

    @pytest.fixture
    def generator(self, request: pytest.FixtureRequest) -> torch.Generator:
        """Random numbers that belong to the test."""
        return torch.Generator().manual_seed(seed_of(request))

    def noise(self, generator: torch.Generator, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        """Standard normal numbers on the device."""
        return (
            torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).to(self.device)
        )

    def buffer(self, *shape: int, dtype: torch.dtype) -> GuardedBuffer:
        """An output with guards around it."""
        return GuardedBuffer(shape, dtype, self.device)

    def require(self, promise: Promise, name: str) -> None:
        """Skip the test of a property that is not promised."""
        if promise == "never":
            pytest.skip(f"the component does not promise {name}; declare it to be tested")

    def test_every_promise_is_a_known_word(self, component: Component) -> None:
        """A property is always, on_request or never."""
        promises = component.properties
        for promise in (promises.batch_invariant, promises.deterministic, promises.graph_safe):
            assert promise in ("always", "on_request", "never")


class GuardedBuffer:
    """An output buffer whose surroundings tell whether somebody wrote past it.

    Attributes:
        tensor: contiguous, filled with a pattern that no operator leaves by accident.
    """

    def __init__(self, shape: Sequence[int], dtype: torch.dtype, device: str) -> None:
        elements = math.prod(shape)
        guard_bytes = _GUARD_ELEMENTS * dtype.itemsize
        self._bytes = torch.full(
            (elements * dtype.itemsize + 2 * guard_bytes,),
            _GUARD_BYTE,
            dtype=torch.uint8,
            device=device,
        )
        self._guard_bytes = guard_bytes
        self.tensor = self._bytes[guard_bytes : len(self._bytes) - guard_bytes]
        self.tensor = self.tensor.view(dtype).view(*shape)

    def check(self) -> torch.Tensor:
        """Return the tensor after making sure that the guards are whole."""
        for guard in (self._bytes[: self._guard_bytes], self._bytes[-self._guard_bytes :]):
            assert bool((guard == _GUARD_BYTE).all()), "memory outside the output was written"
        return self.tensor


def dtype_of(name: str) -> torch.dtype:
    """The dtype of a plain format."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def accumulation(dtype: torch.dtype) -> torch.dtype:
    """What sums must be kept in at least: fp64 for fp64, otherwise fp32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def assert_rows_stand_alone(
    run: Callable[[torch.Tensor], Sequence[torch.Tensor]],
    rows: int,
    generator: torch.Generator,
    *,
    many: Sequence[int] = MANY_ROWS,
    counts: Sequence[int] | None = None,
) -> None:
    """Check that a row's bits depend on no other row, on no row count and on no place.

    Every count from 1 to ``rows``, at the start and at the end, one random order, and the rows over
    and over up to the counts where kernels for long prompts take over.

    Args:
        run: gives the outputs, rows first, for the rows with these indices.
        rows: how many rows there are.
        generator: for the order.
        many: larger counts; the same row may then stand in several places.
        counts: in place of every count up to ``rows``.
    """
    together = [output.clone() for output in run(torch.arange(rows))]
    orders = [torch.randperm(rows, generator=generator)]
    for count in counts or range(1, rows + 1):
        orders += [torch.arange(count), torch.arange(rows - count, rows)]
    orders += [torch.arange(count) % rows for count in many]
    for order in orders:
        for got, want in zip(run(order), together, strict=True):
            assert_same_bits(got, want[order.to(want.device)])
