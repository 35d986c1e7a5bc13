"""Program: transformers' DeepSeek V4 with random weights, one greedy batch for each line of stdin.

Runs in an environment of its own and imports nothing of ours. A line is a JSON object: ``prompts``
(token ids, all of one length), ``output_tokens``, ``setting`` (``dtype``, ``experts``, ``compile``,
``loop``). The answer is one JSON line: ``tokens``, and for each of the clocks ``wall`` and ``cpu``
(processor time of the process) the seconds from the call to the first tokens, if they can be seen,
and to the last ones. The first line that the program prints describes the model. Arguments: the
number of threads, the number of routed experts.

The loop calls the model itself with its own cache: ``generate`` does the same with checks, masks
and processors around each step, so it is slower and is one of the settings.
"""

import json
import sys
import time
from typing import Any

import torch
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM
from transformers.cache_utils import DynamicCache
from transformers.models.deepseek_v4.modeling_deepseek_v4 import (
    DeepseekV4HyperConnection,
    DeepseekV4SparseMoeBlock,
)

SHAPE: dict[str, Any] = {
    "vocab_size": 4096,
    "hidden_size": 256,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "qk_rope_head_dim": 16,
    "q_lora_rank": 128,
    "o_lora_rank": 64,
    "o_groups": 2,
    "moe_intermediate_size": 128,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "routed_scaling_factor": 1.5,
    "swiglu_limit": 10.0,
    "sliding_window": 128,
    "index_n_heads": 8,
    "index_head_dim": 32,
    "index_topk": 64,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "max_position_embeddings": 8192,
    "bos_token_id": 4077,
    "eos_token_id": 4078,
    "pad_token_id": 4079,
    "mlp_layer_types": ["moe"] * 8,
}
"""The shape of the shipped checkpoint, as far as this class has it."""

LAYERS = ["sliding_attention"] * 2 + [
    "compressed_sparse_attention",
    "heavily_compressed_attention",
] * 3
"""Window layers and index layers stand where the shipped checkpoint has them."""

COMPILED: dict[str, Any] = {
    "none": (),
    "connections": (DeepseekV4HyperConnection,),
    "connections_experts": (DeepseekV4HyperConnection, DeepseekV4SparseMoeBlock),
    "whole": (DeepseekV4ForCausalLM,),
}
"""Modules that torch.compile takes, by the name of the setting."""


def build(experts: int, dtype: torch.dtype, product: str, compiled: str) -> DeepseekV4ForCausalLM:
    """The model in one setting; ``eager`` is the only attention that this class offers."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    config = DeepseekV4Config(**SHAPE, layer_types=LAYERS, n_routed_experts=experts)
    config._experts_implementation = product
    # What the class keeps in fp32 stays so, as when a checkpoint is loaded.
    model = DeepseekV4ForCausalLM._from_config(config, dtype=dtype).eval()
    for module in model.modules():
        if isinstance(module, COMPILED[compiled]):
            module.forward = torch.compile(module.forward, dynamic=True)
    return model


def now() -> dict[str, float]:
    """Both clocks."""
    return {"wall": time.perf_counter(), "cpu": time.process_time()}


def answer(tokens: int, began: dict[str, float], first: dict[str, float] | None) -> dict[str, Any]:
    """What came out of a batch that ends now."""
    ended = now()
    spans = {
        clock: [None if first is None else first[clock] - start, ended[clock] - start]
        for clock, start in began.items()
    }
    return {"tokens": tokens, **spans}


@torch.inference_mode()
def decode(model: DeepseekV4ForCausalLM, prompts_BT: torch.Tensor, count: int) -> dict[str, Any]:
    """Draw greedily with the model's own cache."""
    began = now()
    cache = DynamicCache(config=model.config)
    out = model(prompts_BT, cache=cache, use_cache=True, logits_to_keep=1)
    next_B1 = out.logits[:, -1].argmax(-1, keepdim=True)
    drawn = [next_B1.tolist()]
    first = now()
    for _ in range(count - 1):
        out = model(next_B1, cache=cache, use_cache=True)
        next_B1 = out.logits[:, -1].argmax(-1, keepdim=True)
        drawn.append(next_B1.tolist())
    return answer(sum(len(step) for step in drawn), began, first)


@torch.inference_mode()
def generate(model: DeepseekV4ForCausalLM, prompts_BT: torch.Tensor, count: int) -> dict[str, Any]:
    """The same through ``generate``, whose first token cannot be seen from outside."""
    began = now()
    mask_BT = torch.ones_like(prompts_BT)
    out_BT = model.generate(
        prompts_BT,
        attention_mask=mask_BT,
        do_sample=False,
        max_new_tokens=count,
        min_new_tokens=count,
    )
    return answer(out_BT[:, prompts_BT.shape[1] :].numel(), began, None)


def main() -> None:
    """Answer until stdin ends."""
    threads, experts = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(threads)
    built: dict[tuple[str, str, str], DeepseekV4ForCausalLM] = {}
    plain = build(experts, torch.float32, "eager", "none")
    parameters = sum(weight.numel() for weight in plain.parameters())
    print(json.dumps({"parameters": parameters, "torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        setting = asked["setting"]
        key = (setting["dtype"], setting["experts"], setting["compile"])
        if key not in built:
            built[key] = build(experts, getattr(torch, key[0]), key[1], key[2])
        run = generate if setting["loop"] == "generate" else decode
        done = run(built[key], torch.tensor(asked["prompts"]), asked["output_tokens"])
        print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main()
