"""What do tests of row-wise operators share? A stand-in for the library ``tile_kernels``."""

from typing import Any

import pytest
import torch
from deepinfer_core.interfaces.transform import TransformSpec
from deepinfer_core.reference.transform import ReferenceTransform

TWIN = ReferenceTransform()
PLAN = TWIN.plan(TransformSpec(hidden_width=128, streams=4, compute="bfloat16"), 128)
BF16, FP32 = torch.bfloat16, torch.float32


class Library:
    """Stands in for the library and counts its calls by name."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def norm_forward(
        self,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        eps: float,
        residual: torch.Tensor | None = None,
        out_scale: float = 1.0,
        out: torch.Tensor | None = None,
        residual_out: torch.Tensor | None = None,
        with_rstd: bool = False,
    ) -> Any:
        assert weight is not None
        assert out is not None
        assert x.dtype == weight.dtype == out.dtype
        assert x.ndim == 2
        assert x.shape[1] % 16 == 0
        assert x.shape[1] <= 8192
        assert all(tensor.stride(0) % 16 == 0 and tensor.stride(1) == 1 for tensor in (x, out))
        self.called.append("norm")
        TWIN.rms_norm(PLAN, x, weight, eps, out)
        return out, None, x

    def apply_rotary(
        self,
        query: torch.Tensor,
        cos_sin_cache: torch.Tensor,
        key: torch.Tensor | None = None,
        positions: torch.Tensor | None = None,
        interleaved: bool = False,
        conjugate: bool = False,
        seqlen_offset: int = 0,
    ) -> None:
        assert interleaved
        assert query.shape[-1] == cos_sin_cache.shape[1]
        assert query.shape[-1] in (64, 128)
        assert query.stride(-1) == 1
        assert query.data_ptr() % 16 == 0
        assert query.shape[0] <= cos_sin_cache.shape[0]
        self.called.append("rotation")
        cosine_TP, sine_TP = cos_sin_cache.chunk(2, 1)
        TWIN.rope(PLAN, query, cosine_TP, sine_TP, query, inverse=conjugate)

    def mhc_pre_apply_mix_fwd(self, x: torch.Tensor, mix: torch.Tensor, o: torch.Tensor) -> None:
        assert (x.dtype, mix.dtype, o.dtype) == (BF16, FP32, BF16)
        assert x.is_contiguous()
        self.called.append("collapse")
        TWIN.mhc_collapse(PLAN, x, mix, o)

    def mhc_post_fwd(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        post_layer_mix: torch.Tensor,
        comb_res_mix: torch.Tensor,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        sequences, rows, streams, width = residual.shape
        assert sequences == 1
        assert x.dtype == residual.dtype == BF16
        assert post_layer_mix.shape == (1, rows, streams, 1)
        assert comb_res_mix.shape == (1, rows, streams, streams)
        assert all(x.is_contiguous() for x in (x, post_layer_mix, comb_res_mix))
        assert width % 128 == 0
        assert out is not None
        self.called.append("expansion")
        post_TS, comb_TSS = post_layer_mix[0, ..., 0], comb_res_mix[0]
        TWIN.mhc_expand(PLAN, residual[0], x[0], post_TS, comb_TSS, out[0])
        return out


@pytest.fixture
def library() -> Library:
    return Library()
