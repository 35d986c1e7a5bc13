"""Does the compiler still free a stage of a pipeline before the last thread has read it?

Ordinary threads fill a shared buffer in a pipelined loop whose other buffers the copy engine fills.
The compiler gives all of them one barrier a stage, and has the multiplying warps arrive there when
the product is done: before they read that buffer. So scales of a later stage are used. No kernel
here does that. If this canary dies, the rule may go: look at the release of the compiler.
"""

from typing import Any

import pytest
import tilelang
import tilelang.language as T
import torch

ROWS, WIDTH, GROUP = 1024, 4096, 64


def build() -> Any:
    @T.prim_func
    def scaled_product(
        x_TK: T.Tensor((ROWS, WIDTH), "bfloat16"),
        w_NK: T.Tensor((ROWS, WIDTH), "bfloat16"),
        scale_TG: T.Tensor((ROWS, WIDTH // GROUP), "float32"),
        out_TN: T.Tensor((ROWS, ROWS), "float32"),
    ) -> None:
        with T.Kernel(ROWS // 128, ROWS // 128, threads=128) as (across, down):
            x_s = T.alloc_shared((128, GROUP), "bfloat16")
            w_s = T.alloc_shared((128, GROUP), "bfloat16")
            scale_s = T.alloc_shared((128,), "float32")
            part = T.alloc_fragment((128, 128), "float32")
            total = T.alloc_fragment((128, 128), "float32")
            T.clear(total)
            for k in T.Pipelined(WIDTH // GROUP, num_stages=3):
                T.copy(x_TK[down * 128, k * GROUP], x_s)
                T.copy(w_NK[across * 128, k * GROUP], w_s)
                for i in T.Parallel(128):
                    scale_s[i] = scale_TG[down * 128 + i, k]
                T.gemm(x_s, w_s, part, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(128, 128):
                    total[i, j] += part[i, j] * scale_s[i]
            T.copy(total, out_TN[down * 128, across * 128])

    return scaled_product


def share_wrong(switches: dict[str, bool]) -> float:
    """The share of products that are off by more than their roundings."""
    major, minor = torch.cuda.get_device_capability()
    target = {"kind": "cuda", "arch": f"sm_{major}{minor}a"}
    kernel = tilelang.compile(build(), target=target, pass_configs=switches)
    generator = torch.Generator(device="cuda").manual_seed(1)
    x = torch.randn(ROWS, WIDTH, generator=generator, device="cuda").bfloat16()
    w = torch.randn(ROWS, WIDTH, generator=generator, device="cuda").bfloat16()
    scale = torch.rand(ROWS, WIDTH // GROUP, generator=generator, device="cuda") + 0.5
    scaled = x.double() * scale.double().repeat_interleave(GROUP, 1)
    # A product and a scale round once each, and so does each of WIDTH additions.
    bound = 2 * (WIDTH + 2) * 2.0**-24 * (scaled.abs() @ w.double().abs().t())
    out = torch.full((ROWS, ROWS), torch.nan, device="cuda")
    kernel(x, w, scale, out)
    return float((~((out.double() - scaled @ w.double().t()).abs() <= bound)).double().mean())


@pytest.mark.xfail(strict=True, reason="TileLang 0.1.15 frees a stage that is still read")
def test_a_stage_is_free_when_its_last_reader_is_done() -> None:
    assert share_wrong({}) == 0


def test_the_same_kernel_is_right_if_all_warps_do_the_same() -> None:
    assert share_wrong({"tl.disable_warp_specialized": True}) == 0
