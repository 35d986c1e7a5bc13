"""Does a strict configuration load what keeps its promise, and refuse at load what does not?"""

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import NoUsableComponent
from deepinfer_core.reference import gemm

MakeLLM = Callable[..., LLM]
STRICT = ["batch_invariant", "deterministic"]


def test_a_proof_at_load_changes_no_token(make_llm: MakeLLM, llm: LLM) -> None:
    params = SamplingParams(max_tokens=12, seed=5, ignore_eos=True, logprobs=0)
    [plain] = llm.generate("once", params)
    [strict] = make_llm(strict=STRICT).generate("once", params)
    assert strict.token_ids == plain.token_ids
    assert strict.logprobs == plain.logprobs is not None


def test_products_that_depend_on_the_batch_stop_a_strict_start_only(
    make_llm: MakeLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    def product(x_TK: torch.Tensor, weight_NK: torch.Tensor) -> torch.Tensor:
        out_TN = x_TK.to(weight_NK.dtype) @ weight_NK[:, : x_TK.shape[1]].t()
        return out_TN * (1 + len(x_TK) * 2**-22)

    monkeypatch.setattr(gemm, "row_product", product)
    reference = {"gemm": {"use": "core.reference"}}
    assert make_llm(components=reference).generate("ab", SamplingParams(max_tokens=1))
    with pytest.raises(NoUsableComponent, match=r"gemm\.dense core\.reference of deepinfer-core"):
        make_llm(components=reference, strict=STRICT)


def test_the_engine_needs_no_test_tool_to_prove() -> None:
    code = (
        "import sys, deepinfer_core.engine.proof.proving;"
        "sys.exit('pytest' in sys.modules or 'deepinfer_core.testing' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
