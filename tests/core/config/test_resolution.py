"""Do settings reach the choice of components, and are options checked before anything is built?"""

from pathlib import Path

import pytest
from deepinfer_core.config import components, load_settings, resolve_components
from deepinfer_core.errors import ConfigError, DeepInferError, NoUsableComponent
from deepinfer_core.plugin import ModelNeeds
from deepinfer_core.plugin.resolution import Resolution
from pydantic import BaseModel

REFERENCE = "components.gemm.use=core.reference"
"""Options belong to a component: the one that has some is named."""


def resolution(*overrides: str, needs: ModelNeeds | None = None) -> Resolution:
    loaded = load_settings(None, ("plugins.autoload=false", *overrides), environ={})
    return resolve_components(loaded, needs)


def problem(*overrides: str) -> DeepInferError:
    with pytest.raises(DeepInferError) as caught:
        resolution(*overrides).require()
    return caught.value


def test_settings_reach_the_built_component() -> None:
    resolved = resolution(
        REFERENCE, "components.gemm.options.weights=stored", "strict=batch_invariant"
    ).require()
    assert resolved.pick("gemm", "dense").settings == {"weights": "stored"}
    assert resolved.context.device == "cpu"
    assert resolved.context.strict == ("batch_invariant",)


def test_what_the_model_needs_reaches_the_factories() -> None:
    needs = ModelNeeds(hidden_width=64)
    assert resolution(needs=needs).require().context.needs == needs


def test_without_a_model_the_needs_still_know_the_dtype() -> None:
    resolved = resolution("model.numerics.compute=float64").require()
    assert resolved.context.needs.compute == "float64"


def test_a_wrong_option_value_names_its_key_and_its_origin() -> None:
    error = problem(REFERENCE, "components.gemm.options.weights=x")
    assert isinstance(error, ConfigError)
    assert "components.gemm.options.weights = 'x'" in error.message
    assert "from --set components.gemm.options.weights" in error.message
    assert "'widened' or 'stored'" in error.message


def test_a_wrong_option_of_a_slot_names_the_key_of_the_slot() -> None:
    error = problem(REFERENCE, "components.gemm.dense.options.weights=x")
    assert "components.gemm.dense.options.weights = 'x'" in error.message


def test_an_unknown_option_gets_the_nearest() -> None:
    error = problem(REFERENCE, "components.gemm.options.weigths=stored")
    assert "core.reference has no option components.gemm.options.weigths" in error.message
    assert error.hint == "did you mean weights?"


def test_an_unknown_option_of_a_schema_that_drops_such_keys_gets_the_nearest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Lax(BaseModel):
        weights: str = "widened"

    monkeypatch.setattr(components, "ReferenceGemmOptions", Lax)
    error = problem(REFERENCE, "components.gemm.options.weigths=stored")
    assert "core.reference has no option components.gemm.options.weigths" in error.message
    assert error.hint == "did you mean weights?"
    assert resolution(REFERENCE, "components.gemm.options.weights=stored").require()


def test_the_folder_of_compiled_kernels_reaches_the_factories(tmp_path: Path) -> None:
    resolved = resolution(f"kernels.cache_dir={tmp_path}").require()
    assert resolved.context.cache_dir == str(tmp_path)


def test_options_that_do_not_fit_together_say_where_they_were_given() -> None:
    ngram = "components.drafter.use=core.ngram"
    error = problem(ngram, "components.drafter.options.shortest=9")
    assert "shortest is 9, above longest 4" in error.message
    assert "from --set components.drafter.options.shortest)" in error.message


def test_a_component_that_takes_no_options_says_so() -> None:
    error = problem("components.sampler.options.size=3")
    assert "core.cpu takes no options, found size" in error.message


def test_a_component_named_for_a_slot_it_does_not_fill_is_an_error() -> None:
    error = problem("components.sampler.use=core.local")
    assert isinstance(error, NoUsableComponent)
    assert "core.local" in error.message


def test_a_bad_requirement_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="is no requirement"):
        resolution("plugins.require=~acme")


def test_a_file_picks_a_component_by_name(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text('[components.sampler]\nuse = ["core.reference"]\n')
    loaded = load_settings(file, ("plugins.autoload=false",), environ={})
    assert resolve_components(loaded).report.picked()["sampler"] == "core.reference"
