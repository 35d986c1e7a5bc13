"""Are widths that cannot be rounded in whole groups refused before any weight is read?"""

from typing import Any

import pytest
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.activation_widths import ACTIVATION_GROUP, check_activation_widths
from deepinfer_core.model.builder import build_model
from deepinfer_core.model.evaluate import score_logits
from deepinfer_core.numeric import number_format
from deepinfer_core.testing.tiny import tiny_test_config
from deepinfer_core.testing.tiny_model import PlainWeights, reference_parts, tiny_model

EXACT_INPUTS = Numerics(activation_quantisation=False)


def test_the_group_is_that_of_the_format() -> None:
    assert number_format(Numerics().activation_format).group_columns == ACTIVATION_GROUP


@pytest.mark.parametrize(
    ("overrides", "found"),
    [
        ({"hidden_size": 112}, "text_config.hidden_size = 112"),
        ({"q_lora_rank": 33}, "text_config.q_lora_rank = 33"),
        ({"head_dim": 40}, "text_config.num_attention_heads / o_groups * head_dim = 80"),
        ({"o_lora_rank": 31}, "text_config.o_groups * o_lora_rank = 62"),
        ({"moe_intermediate_size": 48}, "text_config.moe_intermediate_size = 48"),
    ],
)
def test_a_width_of_partial_groups_is_refused(overrides: dict[str, Any], found: str) -> None:
    config = tiny_test_config(**overrides)
    with pytest.raises(NotSupported) as caught:
        check_activation_widths(config, Numerics())
    assert caught.value.message.endswith(f"found {found}")
    assert "model.numerics.activation_quantisation=false" in caught.value.hint
    check_activation_widths(config, EXACT_INPUTS)


def test_the_engram_width_is_free_as_its_rows_are_not_rounded_again() -> None:
    config = tiny_test_config(quantised=False, engram_head_dim=33)
    check_activation_widths(config, Numerics())
    model = tiny_model(Numerics(), config=config)
    assert bool(score_logits(model, [3, 4, 5]).isfinite().all())


def test_no_weight_is_asked_for_before_the_refusal() -> None:
    nothing = PlainWeights(config=tiny_test_config(q_lora_rank=48), tensors={})
    with pytest.raises(NotSupported, match="q_lora_rank = 48"):
        build_model(nothing, reference_parts(Numerics()))
