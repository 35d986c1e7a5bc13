"""What becomes of NaN in row-wise operators, and which tensors do they refuse?"""

import pytest
import torch
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.transform import TransformSpec
from deepinfer_core.numeric import fake_quantise
from deepinfer_core.reference.transform import ReferenceTransform
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.seeds import seed_of
from deepinfer_core.testing.tiles import InterpretedKernels
from deepinfer_nvidia.transform.tilelang import TileLangTransform

SPEC = TransformSpec(hidden_width=64, streams=4, compute="bfloat16")
PLAN = ReferenceTransform().plan(SPEC, 128)


@pytest.fixture
def generator(request: pytest.FixtureRequest) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(request))


@pytest.fixture(scope="module")
def component() -> TileLangTransform:
    return TileLangTransform(InterpretedKernels())


def noise(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=generator).bfloat16()


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "fp4_e4m3x16"])
def test_a_nan_is_rounded_to_nan_where_the_format_says_so(
    component: TileLangTransform, name: str, generator: torch.Generator
) -> None:
    """Alone in e4m3, with its whole group in e2m1; the other numbers keep their bits."""
    x_TD = noise(generator, 2, 64)
    x_TD[1, 40] = torch.nan
    got = torch.empty_like(x_TD)
    component.fake_quantise(PLAN, x_TD, name, got)
    want = fake_quantise(x_TD, name)
    assert_same_bits(got.isnan(), want.isnan())
    assert_same_bits(got.nan_to_num(0), want.nan_to_num(0))


def test_a_nan_passes_through_the_activation(component: TileLangTransform) -> None:
    """A limit must not hide it."""
    x_R2I = torch.zeros(2, 64).bfloat16()
    x_R2I[0, 3] = x_R2I[1, 35] = torch.nan
    out = torch.empty(2, 32).bfloat16()
    component.swiglu(PLAN, x_R2I, None, 10.0, out)
    assert out.isnan().nonzero().tolist() == [[0, 3], [1, 3]]


def test_logits_that_are_no_numbers_choose_experts_that_exist(
    component: TileLangTransform,
) -> None:
    """The first of them, as in a sort that puts NaN first."""
    logits_TE = torch.zeros(3, 40)
    logits_TE[0] = torch.nan
    logits_TE[1, 7] = torch.nan
    expert_Tk, weight_Tk = torch.empty(3, 3, dtype=torch.int64), torch.empty(3, 3)
    bias_E, image_T = torch.zeros(40), torch.tensor([False, False, True])
    # As bits, a NaN with a sign is smaller than every number.
    image_bias_E = bias_E.clone()
    image_bias_E[9] = torch.tensor(torch.nan).copysign(torch.tensor(-1.0))
    component.gate_topk(PLAN, logits_TE, bias_E, image_bias_E, image_T, 1.5, expert_Tk, weight_Tk)
    assert expert_Tk.tolist() == [[0, 1, 2], [7, 0, 1], [9, 0, 1]]


def test_double_precision_is_refused(component: TileLangTransform) -> None:
    spec = TransformSpec(hidden_width=64, streams=4, compute="float64")
    with pytest.raises(NotSupported, match="float64"):
        component.plan(spec, 1)
    x_TD = torch.zeros(2, 64, dtype=torch.float64)
    with pytest.raises(NotSupported, match="float64"):
        component.rms_norm(PLAN, x_TD, torch.ones(64), 1e-20, x_TD)


def test_outputs_that_vectors_cannot_reach_are_refused(component: TileLangTransform) -> None:
    x_TD = torch.zeros(1, 64).bfloat16()
    odd = torch.zeros(65).bfloat16()[1:].view(1, 64)
    with pytest.raises(NotSupported, match="multiple of 16 bytes"):
        component.fake_quantise(PLAN, x_TD, "mxfp8", odd)
    with pytest.raises(NotSupported, match="contiguous"):
        component.fake_quantise(PLAN, x_TD, "mxfp8", torch.zeros(64, 2).bfloat16()[:, :1].t())


def test_more_experts_than_a_warp_has_lanes_are_refused(component: TileLangTransform) -> None:
    logits_TE, image_T = torch.zeros(1, 40), torch.zeros(1, dtype=torch.bool)
    expert_Tk, weight_Tk = torch.empty(1, 33, dtype=torch.int64), torch.empty(1, 33)
    with pytest.raises(NotSupported, match="33 experts a row, found kernels for 32"):
        component.gate_topk(
            PLAN, logits_TE, logits_TE[0], logits_TE[0], image_T, 1.5, expert_Tk, weight_Tk
        )


def test_more_experts_than_there_are_are_refused(component: TileLangTransform) -> None:
    zeros_E, image_T = torch.zeros(3), torch.zeros(1, dtype=torch.bool)
    expert_Tk, weight_Tk = torch.empty(1, 4, dtype=torch.int64), torch.empty(1, 4)
    with pytest.raises(NotSupported, match="4 experts"):
        component.gate_topk(
            PLAN, zeros_E[None], zeros_E, zeros_E, image_T, 1.0, expert_Tk, weight_Tk
        )
