"""Does the cost of a token count what every engine has to do, and nothing else?"""

from math import prod

from deepinfer_core.bench.model_cost import model_cost
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.testing.tiny import tiny_test_config
from deepinfer_core.weights.manifest import WeightSpec, manifest_of


def weights(config: ModelConfig) -> list[WeightSpec]:
    return list(manifest_of(config).weights.values())


def values(specs: list[WeightSpec]) -> int:
    return sum(prod(spec.shape) for spec in specs)


def test_parameters_are_those_of_the_whole_checkpoint() -> None:
    config = tiny_test_config(vision=True)
    assert model_cost(config).parameters == values(weights(config))


def test_a_row_costs_a_product_and_a_sum_for_each_value_that_it_meets() -> None:
    config = tiny_test_config(vision=True)
    text = config.text_config
    layers = [spec for spec in weights(config) if spec.name.startswith("layers.")]
    matrices = [
        spec
        for spec in layers
        if len(spec.shape) > 1 and not spec.name.endswith("engram.embed.weight")
    ]
    experts = [spec for spec in matrices if spec.group == "experts"]
    met = values(matrices) - values(experts)
    met += values(experts) * text.num_experts_per_tok // text.n_routed_experts
    cost = model_cost(config)
    assert cost.row_flops == 2 * met
    assert cost.head_flops == 2 * text.vocab_size * text.hidden_size


def test_drafter_vision_and_lookup_tables_are_read_by_no_step() -> None:
    plain = model_cost(tiny_test_config())
    assert model_cost(tiny_test_config(vision=True)).step_bytes == plain.step_bytes
    config = tiny_test_config()
    tables = ("embed.weight", "engram.embed.weight")
    most = sum(
        tensor.nbytes
        for spec in weights(config)
        if not spec.name.startswith("mtp.") and not spec.name.endswith(tables)
        for tensor in spec.stored()
    )
    assert 0 < plain.step_bytes < most


def test_more_experts_to_choose_from_cost_a_row_no_more_but_their_gate() -> None:
    few, many = (tiny_test_config(n_routed_experts=count) for count in (4, 8))
    gates = 2 * few.text_config.num_hidden_layers * 4 * few.text_config.hidden_size
    assert model_cost(many).row_flops - model_cost(few).row_flops == gates
    assert model_cost(many).parameters > model_cost(few).parameters
