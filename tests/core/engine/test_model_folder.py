"""Are settings that do not fit a checkpoint refused where its config is read?"""

import json
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.config import Settings
from deepinfer_core.engine.model_folder import read_config
from deepinfer_core.errors import ConfigError, NotSupported
from deepinfer_core.testing.tiny import tiny_test_config


def folder_of(place: Path, **text: Any) -> Path:
    config = tiny_test_config(**text).to_dict()
    (place / "config.json").write_text(json.dumps(config))
    return place


def settings(**sections: Any) -> Settings:
    return Settings.model_validate(sections)


def test_the_last_token_of_the_vocabulary_can_be_banned_and_the_next_not(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    read_config(folder, settings(engine={"decode_token_blacklist": "4095"}))
    with pytest.raises(ConfigError, match="decode_token_blacklist names token 4096") as caught:
        read_config(folder, settings(engine={"decode_token_blacklist": "3,4096"}))
    assert caught.value.hint == "token ids of this model are 0 to 4095"


def test_widths_that_cannot_be_rounded_are_refused_unless_nothing_is_rounded(
    tmp_path: Path,
) -> None:
    folder = folder_of(tmp_path, q_lora_rank=48)
    with pytest.raises(NotSupported, match="q_lora_rank = 48"):
        read_config(folder, Settings())
    numerics = {"activation_quantisation": False}
    config = read_config(folder, settings(model={"numerics": numerics}))
    assert config.text_config.q_lora_rank == 48
