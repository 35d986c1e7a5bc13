"""Does watching components beside others change nothing, and name the operator that differs?"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.evaluate import score_logits
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.reference.transform import ReferenceTransform
from deepinfer_core.testing.beginnings import words
from deepinfer_core.testing.side_by_side import Written, side_by_side
from deepinfer_core.testing.small_engines import slim_config
from deepinfer_core.testing.tiny_model import reference_parts, stored_tiny_model

TOKENS = words("side by side", 20)


class ShyTransform(ReferenceTransform):
    """Norms are half of what they should be."""

    def rms_norm(
        self,
        plan: Plan,
        x_TD: torch.Tensor,
        weight_D: torch.Tensor,
        eps: float,
        out_TD: torch.Tensor,
    ) -> None:
        super().rms_norm(plan, x_TD, weight_D, eps, out_TD)
        out_TD.mul_(0.5)


def watched(folder: Path, other: ModelParts) -> tuple[torch.Tensor, list[Written]]:
    seen: list[Written] = []
    parts = side_by_side(reference_parts(Numerics()), other, seen)
    with torch.inference_mode():
        return score_logits(stored_tiny_model(folder, slim_config(16), parts), TOKENS), seen


def differing(seen: list[Written]) -> set[tuple[str, str]]:
    return {
        (one.operator, one.argument)
        for one in seen
        if not torch.equal(one.wanted.nan_to_num(), one.found.nan_to_num())
    }


def test_every_kind_of_operator_is_seen_and_logits_are_those_of_the_specified(
    tmp_path: Path,
) -> None:
    found_TV, seen = watched(tmp_path / "both", reference_parts(Numerics()))
    alone = stored_tiny_model(tmp_path / "one", slim_config(16), reference_parts(Numerics()))
    with torch.inference_mode():
        assert torch.equal(found_TV, score_logits(alone, TOKENS))
    assert differing(seen) == set()
    assert {one.operator for one in seen} >= {
        "codec.compress_pairs",
        "codec.store",
        "dense.run",
        "grouped.run_experts",
        "indexer.scores",
        "indexer.select",
        "prefill.run",
        "transform.engram_gate",
        "transform.gate_topk",
        "transform.rope",
    }


def test_the_operator_that_differs_is_named_and_none_behind_it(tmp_path: Path) -> None:
    other = replace(reference_parts(Numerics()), transform=ShyTransform())
    _, seen = watched(tmp_path, other)
    assert differing(seen) == {
        ("transform.collapse_norm", "out_TD"),
        ("transform.expand_norm", "normed_TD"),
        ("transform.norm_rope", "normed_TD"),
        ("transform.norm_rope", "out_TD"),
        ("transform.rms_norm", "out_TD"),
    }


def test_a_result_in_the_place_of_its_input_is_seen_there(tmp_path: Path) -> None:
    _, seen = watched(tmp_path, reference_parts(Numerics()))
    turned = [one for one in seen if one.operator == "transform.rope"]
    assert {one.argument for one in turned} >= {"x_THD", "out_THD"}


@pytest.mark.parametrize("slot", ["device", "all_to_all", "numerics"])
def test_other_parts_stay_as_they_are(slot: str) -> None:
    parts = reference_parts(Numerics())
    assert getattr(side_by_side(parts, parts, []), slot) is getattr(parts, slot)
