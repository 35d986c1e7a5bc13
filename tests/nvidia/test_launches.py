"""How many launches does a decode step of one sequence take?

A launch costs a few microseconds whatever it computes, so a step of one row is as long as they are
many. Counted are kernels, which run nowhere here, and operations of torch that are launches on a
GPU: neither views nor room for results.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from deepinfer_core.bench.layers.depth import shallow_config
from deepinfer_core.bench.layers.opening import open_runner
from deepinfer_core.bench.layers.scales import SCALES
from deepinfer_core.engine.packed_step import PackedStep
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.schedule.plan import SequenceStep, StepPlan
from deepinfer_core.testing.tiny_model import reference_parts
from deepinfer_nvidia.sampler.tilelang import TileLangSampler
from torch.utils._python_dispatch import TorchDispatchMode

_ROOM = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"}
_READ = ("expert_Tk", "row_TC", "index_TL", "slot_TL")
"""Outputs of kernels that torch reads behind them."""

WithKernels = Callable[..., ModelParts]


class CountedKernels(Kernels):
    """Counts calls by the kernel's name; what torch reads of their results becomes zero."""

    def __init__(self, found: "Launches") -> None:
        self._found = found

    def call(self, build: Any, spec: Any, tuning: Any, /, **tensors: torch.Tensor) -> None:
        self._found.note(build.__module__.rpartition(".")[2])
        self._found.is_watching = False
        for name in _READ:
            if name in tensors:
                tensors[name].zero_()
        self._found.is_watching = True


@dataclass
class Launches:
    """By place: the layer that the model is in, or none."""

    place: str = "before the layers"
    is_watching: bool = True
    by_place: dict[str, Counter[str]] = field(default_factory=dict)

    def note(self, name: str) -> None:
        if self.is_watching:
            self.by_place.setdefault(self.place, Counter())[name] += 1

    def enter(self, name: str, _value: torch.Tensor) -> None:
        """A probe of the model, which is called first in every layer."""
        if name.endswith(".trunk"):
            self.place = name.removesuffix(".trunk")

    def count(self, place: str) -> int:
        return self.by_place[place].total()


class WatchedTorch(TorchDispatchMode):
    """Notes operations of torch that are launches on a GPU."""

    def __init__(self, found: Launches) -> None:
        super().__init__()
        self._found = found

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name not in _ROOM and (func._schema.is_mutable or not _is_view(result, args)):
            self._found.note(f"torch.{name}")
        return result


def _is_view(result: Any, args: Sequence[Any]) -> bool:
    results = result if isinstance(result, list | tuple) else [result]
    given = {x.untyped_storage().data_ptr() for x in args if isinstance(x, torch.Tensor)}
    return all(one.untyped_storage().data_ptr() in given for one in results)


def launches_of(config: ModelConfig, position: int, with_kernels: WithKernels) -> Launches:
    """What a step with one row at a position takes."""
    found = Launches()
    kernels = CountedKernels(found)
    parts = with_kernels(reference_parts(Numerics()), kernels)
    blocks = tuple(range(1, 2 + position // 128))
    runner = open_runner(
        config,
        parts,
        TileLangSampler(kernels, "cpu"),
        num_blocks=1 + len(blocks),
        num_slots=2,
        max_backtracking=6,
    )
    found.by_place.clear()
    row = SequenceStep(
        sequence_id=1,
        start=position,
        token_ids=(5,),
        history=(4, 3, 2),
        block_ids=blocks,
        state_slot=1,
        wants_token=True,
    )
    packed = PackedStep(StepPlan((row,)), parts.device)
    step = packed.inputs(packed.bring(None))
    with torch.inference_mode(), WatchedTorch(found):
        runner.model.forward(step, runner.caches, probe=found.enter)
    runner.close()
    return found


@pytest.fixture(scope="module")
def launches(with_kernels: WithKernels) -> Launches:
    """Of a small model of the true architecture; the candidate pool leaves entries out."""
    whole = SCALES["small"]().config
    layers = range(whole.text_config.num_hidden_layers)
    config = shallow_config(whole, layers, table_rows=3000)
    text = config.text_config
    pooled = text.candidate_topk_blocks * text.candidate_block_size
    return launches_of(config, 2 * pooled, with_kernels)


def test_layers_of_a_decode_step_launch_kernels_of_ours_alone(launches: Launches) -> None:
    """What all layers share is worked out before the first one."""
    layers = {place: names for place, names in launches.by_place.items() if "layers." in place}
    last = max(layers, key=lambda place: int(place.rpartition(".")[2]))
    of_torch = {
        name for place, names in layers.items() if place != last for name in names if "." in name
    }
    assert of_torch == set()


def test_what_all_layers_share_takes_few_launches(launches: Launches) -> None:
    """All slots take one, rotations 11, looked-up n-grams and the embedding the others."""
    assert launches.count("before the layers") <= 49


# A layer has four products of attention, three of experts that all rows pass, two of those that
# rows choose; two mixes of two kernels each; and attention itself: these alone are 16.
@pytest.mark.parametrize(
    ("place", "most"),
    [("layers.5", 30), ("layers.7", 30), ("layers.8", 37), ("layers.2", 45)],
    ids=["borrowing", "of single tokens", "selecting", "making pairs and selecting"],
)
def test_a_layer_of_a_decode_step_takes_few_launches(
    launches: Launches, place: str, most: int
) -> None:
    assert launches.count(place) <= most, launches.by_place[place]
