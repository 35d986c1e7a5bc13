"""Do our reference operators and number formats agree with tile_kernels' torch references?

tile_kernels are the kernels of the published serving engine; each has a twin in plain torch, and
that runs here. Where both sides perform the same operations in the same order, bits are compared.
"""

import warnings
import zlib

import pytest
import torch
from deepinfer_core.interfaces.transform import MixSpec, TransformSpec
from deepinfer_core.model.engram_hash import hash_constants
from deepinfer_core.numeric import QuantTensor, quantise
from deepinfer_core.reference.hyper_connections import sinkhorn
from deepinfer_core.reference.transform import ReferenceTransform

REASON = (
    "needs tile_kernels: pip install --no-deps --ignore-requires-python -r requirements/oracle.txt"
    " (nox -s oracle)"
)
ROWS, STREAMS, WIDTH = 37, 4, 160
ULP_FP32 = 2.0**-23
ULP_BF16 = 2.0**-7
OURS = ReferenceTransform()
PLAN = OURS.plan(TransformSpec(hidden_width=WIDTH, streams=STREAMS, compute="bfloat16"), ROWS)


@pytest.fixture(scope="session")
def theirs():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TileLang's import uses deprecated parts of torch
        return pytest.importorskip("tile_kernels.torch", reason=REASON)


@pytest.fixture
def noise(request):
    generator = torch.Generator().manual_seed(zlib.crc32(request.node.name.encode()))
    return lambda *shape: torch.randn(*shape, generator=generator)


def _assert_rounded_alike(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Both are bf16 roundings of fp32 sums in other orders.

    The sums differ by up to 1e-6 of their size and bf16 numbers lie 2^-8 to 2^-7 apart, so that one
    value in 4000 falls on the other side of a rounding boundary and differs by one unit. Where
    large terms cancel, a few more do.
    """
    assert ours.dtype == theirs.dtype == torch.bfloat16
    torch.testing.assert_close(ours.float(), theirs.float(), rtol=ULP_BF16, atol=1e-6)
    assert float((ours != theirs).float().mean()) < 0.005


@pytest.mark.parametrize("iterations", [1, 2, 20])
def test_sinkhorn_has_the_same_bits(theirs, noise, iterations):
    logits_TSS = 3 * noise(ROWS, STREAMS, STREAMS)
    spec = MixSpec(sinkhorn_iterations=iterations, eps=1e-6, norm_eps=1e-20)
    expected = theirs.sinkhorn_normalize_ref(logits_TSS, iterations, 1e-6)
    assert torch.equal(sinkhorn(logits_TSS, spec), expected)


def test_mixes_agree(theirs, noise):
    trunk_TSD = noise(ROWS, STREAMS, WIDTH).bfloat16()
    fn_MK, base_M = 0.05 * noise(24, STREAMS * WIDTH), 0.3 * noise(24)
    scale_3 = 1 + 0.1 * noise(3)
    spec = MixSpec(sinkhorn_iterations=20, eps=1e-6, norm_eps=1e-20)
    pre_TS, post_TS = torch.empty(ROWS, STREAMS), torch.empty(ROWS, STREAMS)
    comb_TSS = torch.empty(ROWS, STREAMS, STREAMS)
    projection = OURS.prepare_mixes(fn_MK)
    OURS.mhc_mixes(PLAN, trunk_TSD, projection, base_M, scale_3, spec, pre_TS, post_TS, comb_TSS)
    mixes = theirs.mhc_pre_norm_fn_ref(trunk_TSD[None], fn_MK, None, 1e-20)
    pre, post, comb = theirs.mhc_pre_split_mixes_ref(mixes, scale_3, base_M, STREAMS, 2.0, 1e-6)
    # A sum of K = 640 products of size 0.05 in another order moves z (about 1) by some
    # sqrt(K) units of 2^-24, 1.5e-6; the mixes move by at most z's distance, post by twice half.
    tolerance = {"atol": 5e-6, "rtol": 0}
    torch.testing.assert_close(pre_TS, pre[0, :, :, 0], **tolerance)
    torch.testing.assert_close(post_TS, post[0, :, :, 0], **tolerance)
    torch.testing.assert_close(
        comb_TSS, theirs.sinkhorn_normalize_ref(comb, 20, 1e-6)[0], **tolerance
    )


def test_collapsed_streams_agree(theirs, noise):
    trunk_TSD, pre_TS = noise(ROWS, STREAMS, WIDTH).bfloat16(), noise(ROWS, STREAMS).sigmoid()
    out_TD = torch.empty(ROWS, WIDTH, dtype=torch.bfloat16)
    OURS.mhc_collapse(PLAN, trunk_TSD, pre_TS, out_TD)
    _assert_rounded_alike(out_TD, theirs.mhc_pre_apply_mix_ref(trunk_TSD, pre_TS[:, :, None]))


def test_expanded_streams_agree(theirs, noise):
    trunk_TSD, y_TD = noise(ROWS, STREAMS, WIDTH).bfloat16(), noise(ROWS, WIDTH).bfloat16()
    post_TS, comb_TSS = 2 * noise(ROWS, STREAMS).sigmoid(), noise(ROWS, 4, 4).softmax(-1)
    out_TSD = torch.empty_like(trunk_TSD)
    OURS.mhc_expand(PLAN, trunk_TSD, y_TD, post_TS, comb_TSS, out_TSD)
    expected = theirs.mhc_post_ref(
        y_TD[None], trunk_TSD[None], post_TS[None, :, :, None], comb_TSS[None]
    )
    _assert_rounded_alike(out_TSD, expected[0])


@pytest.mark.parametrize("chosen", [1, 2, 6])
@pytest.mark.parametrize("tied", [False, True])
def test_experts_and_their_weights_agree(theirs, noise, chosen, tied):
    logits_TE = 2 * noise(ROWS, 24)
    bias_E, image_bias_E = 0.1 * noise(24), 0.1 * noise(24)
    if tied:
        logits_TE, bias_E = logits_TE.round(), torch.zeros(24)
    image_T = noise(ROWS) > 0
    expert_Tk = torch.empty(ROWS, chosen, dtype=torch.int64)
    weight_Tk = torch.empty(ROWS, chosen)
    OURS.gate_topk(PLAN, logits_TE, bias_E, image_bias_E, image_T, 1.5, expert_Tk, weight_Tk)
    expert, weight = theirs.moe_topk_gate_forward(
        logits_TE,
        chosen,
        False,
        0,
        1.5,
        0,
        "sqrtsoftplus",
        bias=bias_E,
        image_bias=image_bias_E,
        image_token_mask=image_T,
    )
    assert torch.equal(expert_Tk, expert)
    # Softplus, root, sum and quotient round once or twice each.
    torch.testing.assert_close(weight_Tk, weight, rtol=8 * ULP_FP32, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("routed", [False, True])
def test_the_clamped_activation_has_the_same_bits(theirs, noise, dtype, routed):
    gate_up = (8 * noise(ROWS, 2 * WIDTH)).to(dtype)
    route_R = noise(ROWS).sigmoid() if routed else None
    out_RI = torch.empty(ROWS, WIDTH)
    OURS.swiglu(PLAN, gate_up, route_R, 10.0, out_RI)
    expected = theirs.swiglu_forward(gate_up, topk_weights=route_R, clamp_value=10.0)
    assert float(gate_up.abs().max()) > 10
    assert torch.equal(out_RI, expected)


def test_the_activation_is_cast_to_the_same_bytes(theirs, noise):
    gate_up, route_R = (4 * noise(ROWS, 2 * WIDTH)).bfloat16(), noise(ROWS).sigmoid()
    out_RI = torch.empty(ROWS, WIDTH)
    OURS.swiglu(PLAN, gate_up, route_R, 10.0, out_RI)
    ours = quantise(out_RI, "mxfp8")
    activated = theirs.swiglu_forward(gate_up, topk_weights=route_R, clamp_value=10.0)
    their_data, their_scale = theirs.cast(activated, "e4m3", (1, 32), round_sf=True)
    assert torch.equal(ours.data.view(torch.uint8), their_data.view(torch.uint8))
    assert torch.equal(ours.scale, _exponent_byte(their_scale))


def _exponent_byte(scale: torch.Tensor) -> torch.Tensor:
    """The ue8m0 byte of fp32 powers of two."""
    return (scale.view(torch.int32) >> 23).to(torch.uint8)


def _wide_bf16(noise) -> torch.Tensor:
    """Rows of all sizes that the scales reach, zeros, powers of two, and exact scale boundaries."""
    x = noise(512, 64) * torch.exp2(torch.linspace(-30, 20, 512))[:, None]
    x[7] = 0
    x[8] = torch.exp2(torch.arange(-32.0, 32.0))
    for row, largest in enumerate((448.0, 450.0, 6.0, 6.03125, 1e-4, 6 * 2.0**-9, 2688.0), 9):
        x[row] *= largest / x[row].abs().max()
    return x.bfloat16()


FORMATS = {
    "mxfp8": ("e4m3", (1, 32), {"round_sf": True}),
    "mxfp4": ("e2m1", (1, 32), {"round_sf": True}),
    "fp4_e4m3x16": ("e2m1", (1, 16), {"use_e4m3_sf": True}),
    "fp8_32x32": ("e4m3", (32, 32), {"round_sf": True}),
}


@pytest.mark.parametrize("name", FORMATS)
def test_casts_give_the_same_bytes(theirs, noise, name):
    x = _wide_bf16(noise)
    form, block, how = FORMATS[name]
    data, scale = theirs.cast(x, form, block, **how)
    ours = quantise(x, name)
    assert torch.equal(ours.data.view(torch.uint8), data.view(torch.uint8))
    expected = scale.view(torch.uint8) if name == "fp4_e4m3x16" else _exponent_byte(scale)
    assert torch.equal(ours.scale.view(torch.uint8), expected)


@pytest.mark.parametrize("name", FORMATS)
def test_casts_are_undone_to_the_same_bits(theirs, noise, name):
    form, block, how = FORMATS[name]
    pair = theirs.cast(_wide_bf16(noise), form, block, **how)
    expected = theirs.cast_back(pair, "fp32", block)
    scale = pair[1] if name == "fp4_e4m3x16" else _exponent_byte(pair[1])
    data = pair[0].view(torch.uint8) if form == "e2m1" else pair[0]
    ours = QuantTensor(data=data, scale=scale, format=name).dequantise()
    assert torch.equal(ours, expected)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rotations_have_the_same_bits(theirs, noise, dtype, inverse):
    x_THD = noise(ROWS, 3, 24).to(dtype)
    angle_TP = 100 * noise(ROWS, 8)
    out_THD = torch.empty_like(x_THD)
    OURS.rope(PLAN, x_THD, angle_TP.cos(), angle_TP.sin(), out_THD, inverse=inverse)
    rotated = theirs.rotary_embedding_ref(
        x_THD[..., 8:], angle_TP.cos(), angle_TP.sin(), interleaved=True, conjugate=inverse
    )
    assert torch.equal(out_THD, torch.cat((x_THD[..., :8], rotated), dim=-1))


@pytest.mark.parametrize("eps", [1e-20, 1e-6])
def test_norms_agree(theirs, noise, eps):
    x_TD, weight_D = noise(ROWS, WIDTH).bfloat16(), (1 + 0.1 * noise(WIDTH)).bfloat16()
    x_TD[5] = 0
    out_TD = torch.empty_like(x_TD)
    OURS.rms_norm(PLAN, x_TD, weight_D, eps, out_TD)
    _assert_rounded_alike(out_TD, theirs.norm_forward_ref(x_TD, weight_D, eps)[0])


def test_hashed_rows_are_equal(theirs, noise):
    hashes = hash_constants(
        layer_ids=(1, 14),
        table_rows=(384006168, 384016682),
        table_size=16_000_000,
        heads=8,
        ngram_size=4,
        compressed_vocab_size=99092,
    )
    specs = list(hashes.values())
    compressed_TN = (noise(ROWS, 4).sigmoid() * 99092).long()
    sizes = torch.stack([spec.prime_C for spec in specs]).int().view(2, 3, 8)
    offsets = theirs.make_offsets(sizes)
    expected = theirs.engram_hash_ref(
        compressed_TN.int(), torch.stack([spec.multiplier_N for spec in specs]), sizes, offsets
    )
    for layer, spec in enumerate(specs):
        row_TC = torch.empty(ROWS, 24, dtype=torch.int64)
        OURS.engram_rows(PLAN, compressed_TN, spec, row_TC)
        assert torch.equal(spec.offset_C, offsets[layer].long())
        assert torch.equal(row_TC, expected[layer].long())


def test_gated_streams_agree(theirs, noise):
    trunk_TSD = noise(ROWS, STREAMS, WIDTH).bfloat16()
    kv_TSD = noise(ROWS, STREAMS + 1, WIDTH).bfloat16()
    query_SD = (1 + 0.1 * noise(STREAMS, WIDTH)).bfloat16()
    key_SD = (1 + 0.1 * noise(STREAMS, WIDTH)).bfloat16()
    trunk_TSD[3, 1] = 0  # a dot product of exactly zero has a gate of one half
    image_T = noise(ROWS) > 1
    out_TSD = torch.empty_like(trunk_TSD)
    OURS.engram_gate(
        PLAN,
        trunk_TSD,
        kv_TSD[:, :STREAMS],
        kv_TSD[:, STREAMS],
        query_SD,
        key_SD,
        image_T,
        1e-20,
        out_TSD,
    )
    expected = theirs.engram_gate_ref(
        trunk_TSD, kv_TSD, query_SD, key_SD, 1e-6, 1e-20, image_token_mask=image_T
    )
    _assert_rounded_alike(out_TSD, expected)
