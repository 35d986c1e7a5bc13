"""Do launch code and kernels together compute what the reference computes, from token to logit?

Kernels are interpreted; those for one architecture stay out.
"""

from pathlib import Path

import pytest
import torch
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.evaluate import score_logits
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.testing.beginnings import words
from deepinfer_core.testing.small_engines import slim_config
from deepinfer_core.testing.tiles import InterpretedKernels
from deepinfer_core.testing.tiny_model import reference_parts, stored_tiny_model
from deepinfer_nvidia.attention.tilelang import TileLangAttention
from deepinfer_nvidia.gemm.tilelang import TileLangGemm
from deepinfer_nvidia.transform.tilelang import TileLangTransform

TOKENS = words("whole model", 30)
"""More than a window of 16 and its ring of 22."""


def interpreted_parts(numerics: Numerics) -> ModelParts:
    kernels, reference = InterpretedKernels(), reference_parts(numerics)
    attention, gemm = TileLangAttention(kernels), TileLangGemm(kernels)
    return ModelParts(
        device=reference.device,
        prefill=attention,
        decode=attention,
        indexer=attention,
        codec=attention,
        dense=gemm,
        grouped=gemm,
        transform=TileLangTransform(kernels),
        all_to_all=reference.all_to_all,
        numerics=numerics,
    )


# Without few-bit roundings an error stays small. fp32: sums of at most 200 terms in another order
# have errors of about sqrt(200) 2^-24 = 8e-7, and some ten of them follow each other in each of
# four layers: 40 such errors of random sign give 5e-6. bf16: each of as many steps rounds to 2^-9,
# so 40 of them give 1.2e-2; four times that is allowed. A wrong row, mask or scale changes
# everything: its error is about 1. In bf16 a row now and then goes to another expert; half of the
# rows must be near.
@pytest.mark.parametrize(
    ("compute", "caches", "most"),
    [("float32", False, 1e-5), ("float32", True, 1e-5), ("bfloat16", False, 5e-2)],
)
@pytest.mark.parametrize("chunk", [6, 30])
def test_logits_are_those_of_the_reference(
    compute: str, caches: bool, most: float, chunk: int, tmp_path: Path
) -> None:
    numerics = Numerics(
        compute=compute,  # type: ignore[arg-type]
        activation_quantisation=False,
        cache_quantisation=caches,
    )
    config = slim_config(16)
    ours = stored_tiny_model(tmp_path / "ours", config, interpreted_parts(numerics))
    theirs = stored_tiny_model(tmp_path / "theirs", config, reference_parts(numerics))
    with torch.inference_mode():
        found_TV = score_logits(ours, TOKENS, chunk_tokens=chunk)
        wanted_TV = score_logits(theirs, TOKENS)
    error_T = (found_TV - wanted_TV).norm(dim=1) / wanted_TV.norm(dim=1)
    assert float(error_T.max() if compute == "float32" else error_T.median()) <= most
