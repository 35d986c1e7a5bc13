"""How is NVIDIA NeMo Automodel's DeepSeek-V4.1 built from our weights and asked for its values?

It is an independent implementation for training: one pass over a whole prompt, no caches, plain
torch. Differences that matter here: routed experts are stacked and transposed (its own adapter
does that), the confidence head is fed normed states where released weights expect the raw ones, and
cache quantisation is a function of its own that a test may replace by the identity.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from deepinfer_core.model.config import ModelConfig

REASON = "needs NeMo Automodel: pip install --no-deps -r requirements/oracle.txt (nox -s oracle)"
BACKEND = {
    "attn": "eager",
    "linear": "torch",
    "rms_norm": "torch_fp32",
    "experts": "torch",
    "dispatcher": "torch",
}


@dataclass(frozen=True)
class Drafts:
    """One greedy draft round: ids [n], their logits [n, V] and acceptance probabilities [n]."""

    tokens: list[int]
    logits: torch.Tensor
    confidence: torch.Tensor


@dataclass(frozen=True)
class NemoModel:
    """A backbone, and its drafter, with our weights."""

    backbone: Any
    drafter: Any

    @torch.inference_mode()
    def logits(self, tokens: list[int], **images: torch.Tensor) -> torch.Tensor:
        """Logits [T, V] of a whole prompt."""
        return self.backbone(torch.tensor([tokens]), **images).logits[0]

    @torch.inference_mode()
    def draft(self, tokens: list[int], anchor: int) -> Drafts:
        """Draft greedily behind ``tokens`` and the newly chosen ``anchor``."""
        last, config = self.drafter.mtp[-1], self.drafter.config
        raw: list[torch.Tensor] = []
        hook = last.norm.register_forward_pre_hook(lambda _, inputs: raw.append(inputs[0]))
        noise = [config.dspark_noise_token_id] * (config.dspark_block_size - 1)
        at = torch.tensor([[len(tokens)]])
        # The model adapter's own forward samples anchors; its parent takes the one we want.
        output = super(type(self.drafter), self.drafter).forward(
            self.drafter.embed_tokens(torch.tensor([[anchor, *noise]])),
            self._features(tokens),
            position_ids=self.drafter.build_position_ids(at, len(tokens)),
            attention_mask=self.drafter.build_attention_mask(
                at, torch.ones_like(at, dtype=torch.bool), len(tokens), torch.float32
            ),
        )
        hook.remove()
        base = self.drafter.compute_logits(output.normalized_hidden_states)[0]
        chosen, logits, confidence = anchor, [], []
        drafts = []
        for row in range(base.shape[0]):
            transition, embedding = last.markov_head(torch.tensor(chosen))
            logits.append(base[row] + transition)
            confidence.append(last.confidence_head(raw[0][0, row], embedding).sigmoid())
            chosen = int(logits[-1].argmax())
            drafts.append(chosen)
        return Drafts(drafts, torch.stack(logits), torch.stack(confidence))

    def _features(self, tokens: list[int]) -> torch.Tensor:
        """Stream means at the target layers' attention inputs, side by side [1, T, L * D]."""
        seen: list[torch.Tensor] = []
        targets = list(self.drafter.config.dspark_target_layer_ids)
        hooks = [
            module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].mean(2)))
            for module in self.backbone.get_dspark_target_feature_modules(targets)
        ]
        self.logits(tokens)
        for hook in hooks:
            hook.remove()
        return torch.cat(seen, dim=-1)


class Nemo:
    """The installed package."""

    def build(self, config: ModelConfig, tensors: dict[str, torch.Tensor]) -> NemoModel:
        """Build both models in fp32; tensors are named as in a checkpoint, without scales."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on their imports of what they can do without
            return self._build(config, tensors)

    def _build(self, config: ModelConfig, tensors: dict[str, torch.Tensor]) -> NemoModel:
        from nemo_automodel.components.models.common import BackendConfig
        from nemo_automodel.components.models.deepseek_v41.config import DeepseekV41Config
        from nemo_automodel.components.models.deepseek_v41.dspark import DeepseekV41DSparkModel
        from nemo_automodel.components.models.deepseek_v41.model import DeepseekV41ForCausalLM

        backend = BackendConfig(**BACKEND)
        theirs = DeepseekV41Config(
            text_config=_text_keys(config),
            vision_config=_vision_keys(config),
            image_token_id=config.image_token_id or 0,
            dtype="float32",
        )
        backbone = DeepseekV41ForCausalLM(theirs, backend=backend, tokenizer=word_tokenizer(config))
        drafter = DeepseekV41DSparkModel(
            theirs.text_config, backend, num_anchors=1, enable_confidence_head=True
        )
        for model in (backbone, drafter):
            model.to(torch.float32).eval()
        drafted = {name: value for name, value in tensors.items() if name.startswith("mtp.")}
        others = {name: value for name, value in tensors.items() if name not in drafted}
        backbone.load_state_dict(backbone.state_dict_adapter.from_hf(dict(others)))
        copied = {
            "embed_tokens.weight": tensors["embed.weight"],
            "lm_head.weight": tensors["head.weight"],
        }
        drafter.load_state_dict(drafter.state_dict_adapter.from_hf(dict(drafted)) | copied)
        return NemoModel(backbone, drafter)

    @contextmanager
    def plain_caches(self) -> Iterator[None]:
        """Keep cached values as they are inside the block."""
        from nemo_automodel.components.models.deepseek_v41 import attention, dspark

        with pytest.MonkeyPatch.context() as patch:
            for module in (attention, dspark):
                patch.setattr(module, "quantize_cache", lambda values, **_: values)
            yield


@pytest.fixture(scope="session")
def nemo() -> Iterator[Nemo]:
    """NeMo, run eagerly: compiling its expert activation takes longer than all tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("nemo_automodel", reason=REASON)
        for part in ("components.models.deepseek_v41.model", "components.models.common"):
            importlib.import_module(f"nemo_automodel.{part}")
        importlib.import_module("transformers.tokenization_utils_tokenizers")
    torch.compiler.set_stance("force_eager")
    yield Nemo()
    torch.compiler.set_stance("default")


def word_tokenizer(config: ModelConfig) -> Any:
    """A fast tokenizer whose compressed ids are the ids modulo the compressed size."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    text = config.text_config
    size = text.engram_compressed_vocab_size
    words = [f"w{i}" for i in range(size)] + [f"W{i}" for i in range(text.vocab_size - size)]
    ids = {word: i for i, word in enumerate(words)}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(ids, unk_token="w0"))
    )


def _text_keys(config: ModelConfig) -> dict[str, Any]:
    ours_alone = {"hc_shifted", "use_fp4_sparse_kv", "index_k_source_layer_ids", "model_type"}
    keys = config.to_dict()["text_config"]
    kept = {
        key: value
        for key, value in keys.items()
        if key not in ours_alone and not key.startswith(("dspark_target_attn", "dspark_confidence"))
    }
    return kept | {"dtype": "float32"}


def _vision_keys(config: ModelConfig) -> dict[str, Any]:
    if config.vision_config is None:
        return {"num_hidden_layers": 0}
    return config.to_dict()["vision_config"]
