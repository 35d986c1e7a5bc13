"""Does an engine that the settings give a store find there what another one has left?

With the real fetcher in a process of its own, over the small checkpoint.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.outputs import Completion
from deepinfer_core.engine.request_options import RequestOptions
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import ConfigError, WeightsError
from deepinfer_core.testing.beginnings import words

MakeLLM = Callable[..., LLM]

PROMPT = words("stored", 300)
ANSWER = SamplingParams(temperature=1, seed=5, max_tokens=8, ignore_eos=True)
PATIENT = {"match_timeout_s": 20.0, "fetch_timeout_s": 60.0, "fetch_patience": 1e9}


def ask(llm: LLM, salt: str = "us", retention: str = "chat") -> Completion:
    options = RequestOptions(cache_salt=salt, retention=retention)
    [done] = llm.generate(prompt_token_ids=[PROMPT], sampling_params=ANSWER, options=options)
    return done


def forget(llm: LLM) -> None:
    llm.engine.batch.pages.cache.clear()


def metric(llm: LLM, name: str) -> float:
    lines = llm.metrics_text().splitlines()
    return float(next(line for line in lines if line.startswith(f"deepinfer_{name} ")).split()[1])


def test_engines_share_a_store_on_a_disk(make_llm: MakeLLM, tmp_path: Path) -> None:
    options = {"folder": str(tmp_path / "store"), "capacity_bytes": 1 << 26, "durable": False}
    settings = {
        "components": {"kv_store": {"use": "core.disk", "options": options}},
        "kv_store": {**PATIENT, "fetch_bytes": 1 << 22, "write_bytes": 1 << 22},
    }
    first = make_llm(**settings)
    cold = ask(first)
    assert cold.usage.stored_tokens == cold.usage.cached_tokens == 0
    first.close()

    second = make_llm(**settings)
    assert ask(second, salt="them").usage.cached_tokens == 0
    found = ask(second)
    assert found.token_ids == cold.token_ids
    assert found.usage.stored_tokens == 256
    # States outlive no process: small windows of all layers are fed again, in whole blocks.
    assert found.usage.replayed_tokens == 128
    forget(second)
    again = ask(second)
    assert again.token_ids == cold.token_ids
    assert (again.usage.stored_tokens, again.usage.replayed_tokens) == (256, 0)
    assert metric(second, "prompt_stored_tokens_total") == 512

    forget(second)
    exchange = second.engine.batch.pages.exchange
    assert exchange is not None
    os.kill(exchange._traffic.process_id, signal.SIGKILL)
    assert ask(second).token_ids == cold.token_ids
    refused = ask(second, retention="yearly")
    assert "yearly" in str(refused.error)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prefix_cache": False}, "prefix_cache"),
        ({"kv_store": {"classes": ["agent", "yearly"]}}, "yearly"),
        ({"server": {"key_retention": ["alice:yearly"]}}, "alice"),
    ],
)
def test_settings_that_make_a_store_useless_are_refused(
    make_llm: MakeLLM, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_llm(components={"kv_store": {"use": "core.memory"}}, **settings)


@pytest.fixture
def without_weights(byte_checkpoint: Path, tmp_path: Path) -> Path:
    """A checkpoint of which all can be read but its weights."""
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "tokenizer.json"):
        if (byte_checkpoint / name).exists():
            (bare / name).write_bytes((byte_checkpoint / name).read_bytes())
    return bare


def on_disk(folder: Path) -> dict[str, object]:
    options = {"folder": str(folder), "capacity_bytes": 1 << 26, "durable": False}
    return {"kv_store": {"use": "core.disk", "options": options}}


def test_a_store_that_cannot_be_opened_is_told_before_weights_are_read(
    without_weights: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is a file, not a folder"):
        LLM(without_weights, components=on_disk(tmp_path / "file"))


def test_weights_that_cannot_be_read_leave_the_store_to_others(
    without_weights: Path, tmp_path: Path
) -> None:
    for _ in range(2):
        with pytest.raises(WeightsError):
            LLM(without_weights, components=on_disk(tmp_path / "store"))
