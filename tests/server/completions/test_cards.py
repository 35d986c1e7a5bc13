"""What the service says of its models and of itself."""

from typing import Any

import pytest
from deepinfer_core.errors import EngineUnavailable, NotFound

import deepinfer_core

CARD = {
    "id": "other",
    "object": "model",
    "created": 1_760_000_000,
    "owned_by": "deepinfer",
    "type": "model",
    "display_name": "other",
    "created_at": "2025-10-09T08:53:20Z",
    "max_model_len": 8192,
}


@pytest.mark.parametrize("path", ["/v1/models", "/models", "/anthropic/v1/models"])
def test_every_name_of_the_model_has_a_card_for_both_dialects(service: Any, path: str) -> None:
    found = service.json(path)
    assert [card["id"] for card in found["data"]] == ["fake", "other"]
    assert found["data"][1] == CARD
    assert (found["object"], found["has_more"]) == ("list", False)
    assert (found["first_id"], found["last_id"]) == ("fake", "other")


def test_one_model_is_found_by_its_name(service: Any) -> None:
    assert service.json("/v1/models/{model}", values={"model": "other"}) == CARD


def test_another_name_is_not_found(service: Any) -> None:
    with pytest.raises(NotFound, match="'x'"):
        service.json("/v1/models/{model}", values={"model": "x"})


def test_the_version_is_that_of_the_package(service: Any) -> None:
    assert service.json("/version") == {"version": deepinfer_core.__version__}


def test_the_service_describes_its_engine(service: Any) -> None:
    found = service.json("/server_info")
    assert found["components"] == {"sampler": "fake.script"}
    assert (found["model"], found["state"], found["in_work"]) == ("fake", "ready", 0)
    assert (found["max_model_len"], found["vocabulary"]) == (8192, 265)
    assert found["has_tokenizer"] is True


def test_an_engine_that_is_not_loaded_has_nothing_to_describe(service: Any) -> None:
    service.engine.become("loading")
    for path in ("/server_info", "/v1/models"):
        with pytest.raises(EngineUnavailable):
            service.json(path)


def test_a_name_of_two_parts_has_a_path_of_its_own(service_over: Any) -> None:
    service = service_over(model_names=("vendor/model", "m"))
    assert service.json("/v1/models/vendor/model")["id"] == "vendor/model"
    assert service.json("/models/vendor/model")["id"] == "vendor/model"
    assert service.json("/v1/models/{model}", values={"model": "vendor/model"})["id"]
