"""Is the shipped checkpoint what its card and its training code say?"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from deepinfer_core.config.checkpoints import checkpoint_folder, checkpoint_name

sys.path.insert(0, str(Path(__file__).parents[3] / "plugins" / "deepinfer_tiny"))

from training import export, formats, ngram, reading
from training.config import TINY

ROOT = Path(__file__).parents[3]
CHECKPOINT = ROOT / "plugins" / "deepinfer_tiny" / "src" / "deepinfer_tiny" / "checkpoint"


def test_all_files_together_stay_within_16_mib() -> None:
    assert sum(f.stat().st_size for f in CHECKPOINT.iterdir()) <= export.LIMIT_BYTES


def test_the_configuration_is_the_trained_one() -> None:
    stored = json.loads((CHECKPOINT / "config.json").read_text())
    temperature = stored["text_config"]["dspark_confidence_temperature"]
    assert stored == json.loads(json.dumps(TINY.to_hf(temperature)))
    assert len(temperature) == TINY.dspark_block_size


def test_the_hash_constants_follow_from_the_shipped_tokenizer() -> None:
    keys = ngram.compressed_vocabulary(CHECKPOINT / "tokenizer.json")
    assert max(keys) + 1 == TINY.engram_compressed_vocab_size
    assert ngram.build(TINY, keys).row_counts == TINY.engram_num_embeddings


@pytest.mark.parametrize(
    ("name", "encode"),
    [
        ("layers.0.attn.wq_a", formats.encode_block32),
        ("layers.5.ffn.experts.3.w2", formats.encode_mxfp4),
        ("layers.1.engram.embed", formats.encode_row32),
    ],
)
def test_encoding_what_was_decoded_gives_the_same_values(name, encode) -> None:
    # A block whose largest value was rounded down to a power of two may be stored again with
    # half the scale, so values are compared, not bytes.
    value = reading.decode(*stored_pair(name))
    assert value.abs().max() > 0
    assert torch.equal(reading.decode(*encode(value)), value)


def stored_pair(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    from safetensors import safe_open

    index = json.loads((CHECKPOINT / "model.safetensors.index.json").read_text())["weight_map"]
    found = []
    for kind in ("weight", "scale"):
        with safe_open(CHECKPOINT / index[f"{name}.{kind}"], framework="pt") as f:
            found.append(f.get_tensor(f"{name}.{kind}"))
    return found[0], found[1]


# Bits per byte that the issue asks for; the card has the measured values.
GOALS = {("tinystories",): 0.82, ("story_chat",): 0.42, ("books", "tales"): 1.45}


@pytest.mark.slow
@pytest.mark.parametrize("sources", sorted(GOALS))
def test_the_engine_predicts_held_out_text_as_well_as_asked(sources) -> None:
    from deepinfer_core.engine.llm import LLM
    from deepinfer_core.engine.scoring import token_nats

    lines = (ROOT / "tests" / "data" / "heldout.jsonl").read_text(encoding="utf-8").splitlines()
    # Every second one: the card has the figures of all.
    documents = [d for d in map(json.loads, lines) if d["source"] in sources][::2]
    with LLM(CHECKPOINT) as llm:
        ids = [d.get("ids") or [*llm.encode(d["text"]), TINY.eos_token_id] for d in documents]
        nats = sum(token_nats(llm, ids))
    bits = nats / torch.log(torch.tensor(2.0)).item()
    assert bits / sum(d["bytes"] for d in documents) <= GOALS[sources]


def test_the_model_is_called_like_the_distribution() -> None:
    assert checkpoint_name(None, checkpoint_folder(None)) == "deepinfer-tiny"
