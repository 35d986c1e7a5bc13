"""How do trained weights become a checkpoint in the published format?

FP8 e4m3 with 32 x 32 ue8m0 scales, MXFP4 experts packed two to a byte, Engram tables e4m3 with one
scale per row and 32 channels, BF16 and F32 as the model description says. The bytes are those of
the quantisers that training used, so nothing is lost by exporting.

    python -m training.export --random OUT        # untrained weights, for engine developers
    python -m training.export --weights RUN OUT   # RUN: output folder of `run`
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from . import formats, parameters
from .config import TINY, ModelConfig
from .halves import load_halves

__all__ = ["LIMIT_BYTES", "encode", "write"]

LIMIT_BYTES = 16 * 2**20
_SHARDS = 2
_FP8 = ("wq_a", "wq_b", "wkv", "wo_a", "wo_b", "main_proj")
_FP32 = ("attn_sink", "gate.bias", "gate.bias_vl")
_BF16_IN_ATTENTION = ("compressor.wkv", "compressor.wgate")


def _kind(name: str) -> str:
    if ".ffn.experts." in name:
        return "fp4"
    if name.endswith("engram.embed.weight"):
        return "rows"
    if name.endswith(_FP32) or "hc_" in name:
        return "fp32"
    stem = name.removesuffix(".weight")
    if stem.endswith(_BF16_IN_ATTENTION):
        return "bf16"
    return "fp8" if stem.endswith(_FP8) or ".shared_experts." in name else "bf16"


def encode(config: ModelConfig, stacked: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Checkpoint tensors by published name, scales included.

    Args:
        config: sizes.
        stacked: fp32 master weights as `parameters.shapes` lists them.
    """
    quantisers = {
        "fp4": formats.encode_mxfp4,
        "fp8": formats.encode_block32,
        "rows": formats.encode_row32,
    }
    found = {}
    for name, value in parameters.to_checkpoint(config, stacked).items():
        kind = _kind(name)
        if kind in quantisers:
            data, scale = quantisers[kind](value.float())
            found[name] = data.contiguous()
            found[name.removesuffix("weight") + "scale"] = scale.contiguous().view(
                torch.float8_e8m0fnu
            )
        else:
            found[name] = value.to(torch.float32 if kind == "fp32" else torch.bfloat16).contiguous()
    return found


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_shards(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Shards of about equal size in the order of the names, and their index."""
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    shards: list[dict[str, torch.Tensor]] = [{} for _ in range(_SHARDS)]
    done = 0
    for name, tensor in sorted(tensors.items()):
        shards[min(done * _SHARDS // total, _SHARDS - 1)][name] = tensor.clone()
        done += tensor.numel() * tensor.element_size()
    for old in folder.glob("model-*.safetensors"):
        old.unlink()
    weight_map = {}
    for i, shard in enumerate(shards):
        name = f"model-{i + 1:05d}-of-{_SHARDS:05d}.safetensors"
        save_file(shard, folder / name, metadata={"format": "pt"})
        (folder / name).chmod(0o644)
        weight_map.update(dict.fromkeys(shard, name))
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    _write_json(folder / "model.safetensors.index.json", index)


def write(
    folder: Path, config: ModelConfig, stacked: dict[str, torch.Tensor], temperature: list[float]
) -> int:
    """Write configuration, shards and index.

    Args:
        folder: created if missing; older shards in it are removed.
        config: sizes.
        stacked: fp32 master weights.
        temperature: divisor of the confidence logit for each draft position.

    Returns:
        Size of all files of the folder in bytes.

    Raises:
        ValueError: the folder is larger than `LIMIT_BYTES`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _write_shards(folder, encode(config, stacked))
    special = {
        "bos_token_id": config.bos_token_id,
        "eos_token_id": config.eos_token_id,
        "pad_token_id": config.pad_token_id,
    }
    _write_json(folder / "config.json", config.to_hf(temperature))
    _write_json(folder / "generation_config.json", special)
    size = sum(f.stat().st_size for f in folder.iterdir())
    if size > LIMIT_BYTES:
        raise ValueError(f"checkpoint has {size} bytes, limit {LIMIT_BYTES}: use smaller sizes")
    return size


def main() -> None:
    """Command line, see the module's first lines."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--random", action="store_true")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--tokenizer", type=Path)
    options = parser.parse_args()
    temperature = [1.0] * TINY.dspark_block_size
    if options.random:
        stacked = parameters.initialise(TINY, 0)
    else:
        stacked = load_halves(options.weights)
        found = stacked.pop("confidence_temperature", None)
        if found is not None:
            temperature = [round(float(t), 3) for t in found]
    if options.tokenizer:
        options.out.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(options.tokenizer, options.out / "tokenizer.json")
    print(write(options.out, TINY, stacked, temperature), "bytes")


if __name__ == "__main__":
    main()
