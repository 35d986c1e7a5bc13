"""What is proven, when, and what is said where a proof fails?"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from deepinfer_core.engine.proof import proving, whole_model
from deepinfer_core.errors import DeviceError, NoUsableComponent, PluginFailed
from deepinfer_core.interfaces.component import Plan, Properties
from deepinfer_core.interfaces.kinds import SLOTS
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.reference.gemm import ReferenceGemm
from deepinfer_core.reference.transform import ReferenceTransform

Prove = Callable[..., Any]


@pytest.mark.parametrize(
    "numerics",
    [
        Numerics(),
        Numerics(cache_quantisation=False),
        Numerics(compute="float64", activation_quantisation=False, cache_quantisation=False),
    ],
    ids=["production", "plain caches", "semantic"],
)
def test_the_reference_proves_everything(prove_with: Prove, numerics: Numerics) -> None:
    prove_with(strict=("batch_invariant", "deterministic"), numerics=numerics)


def test_every_slot_but_the_device_has_a_trial(
    prove_with: Prove, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = set()

    def look(trial: Any, most_rows: int) -> str:
        tried.add((trial.kind, trial.slot))
        return ""

    monkeypatch.setitem(proving._PROVABLE, "batch_invariant", (look, lambda samples: ""))
    prove_with()
    assert tried == {(kind, slot) for kind, slots in SLOTS.items() for slot in slots} - {
        ("device", "device")
    }


def test_nothing_runs_unless_strict_asks(
    prove_with: Prove, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("a proof was begun")

    monkeypatch.setattr(proving, "Samples", refuse)
    prove_with(strict=())
    monkeypatch.undo()


def test_a_component_that_takes_its_promise_back_once_built_is_refused(prove_with: Prove) -> None:
    class Shy(ReferenceTransform):
        @property
        def properties(self) -> Properties:
            return Properties(batch_invariant="never", deterministic="never", graph_safe="never")

    with pytest.raises(NoUsableComponent, match=r"transform acme.transform .*promises it never"):
        prove_with({("transform", "transform"): Shy()})
    prove_with({("transform", "transform"): Shy()}, strict=())


def test_a_component_that_raises_is_named(prove_with: Prove) -> None:
    class Fragile(ReferenceGemm):
        def run(self, plan: Plan, x_TK: torch.Tensor, weight: Any, out_TN: torch.Tensor) -> None:
            if x_TK.shape[0] == 33:
                raise ZeroDivisionError("tiles")
            super().run(plan, x_TK, weight, out_TN)

    with pytest.raises(PluginFailed, match=r"gemm.dense acme.dense of acme-dist broke in the prod"):
        prove_with({("gemm", "dense"): Fragile()})


def test_an_error_of_our_own_passes_as_it_is(prove_with: Prove) -> None:
    class Poor(ReferenceGemm):
        def run(self, plan: Plan, x_TK: torch.Tensor, weight: Any, out_TN: torch.Tensor) -> None:
            raise DeviceError("no memory")

    with pytest.raises(DeviceError, match="no memory"):
        prove_with({("gemm", "dense"): Poor()})


@pytest.mark.parametrize("name", ["batch_invariant", "deterministic"])
def test_a_model_that_breaks_the_promise_as_a_whole_is_refused_with_all_names(
    prove_with: Prove, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forwards = [0]

    class Drifting(ReferenceTransform):
        """Drifts once the trials are over."""

        def rms_norm(
            self,
            plan: Plan,
            x_TD: torch.Tensor,
            weight_D: torch.Tensor,
            eps: float,
            out_TD: torch.Tensor,
        ) -> None:
            super().rms_norm(plan, x_TD, weight_D, eps, out_TD)
            forwards[0] += 1
            out_TD *= forwards[0]

    monkeypatch.setattr(proving, "_trials", lambda samples, sampler: iter(()))
    with pytest.raises(NoUsableComponent) as caught:
        prove_with({("transform", "transform"): Drifting()}, strict=(name,))
    assert f"strict asks for {name}" in caught.value.message
    assert "acme.transform, core.reference" in caught.value.message
    assert "no single operator showed it" in caught.value.hint


def test_chunks_of_the_text_go_through_both_slots_of_attention(
    prove_with: Prove, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    joined = whole_model.join_steps
    monkeypatch.setattr(proving, "_trials", lambda samples, sampler: iter(()))
    monkeypatch.setattr(
        whole_model,
        "join_steps",
        lambda steps: (counts.append([len(step.token_T) for step in steps]), joined(steps))[1],
    )
    model = prove_with()
    assert counts == [[1, 9, 1], [9], [12, 5, 1], [1, 5], [3, 8, 10]]
    assert 1 < model.config.verified_rows < 8
