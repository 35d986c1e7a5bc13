"""Is a component that breaks its promise refused, by name, in every slot?

Each variant computes what the reference computes, up to a rounding or a choice that depends on
something beyond the row.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from deepinfer_core.errors import NoUsableComponent
from deepinfer_core.interfaces.all_to_all import Dispatched
from deepinfer_core.interfaces.attention import CachePages, KeySource
from deepinfer_core.interfaces.component import Component, Plan
from deepinfer_core.interfaces.sampler import SamplerOutputs, SamplerRows
from deepinfer_core.reference.all_to_all import LocalExchange
from deepinfer_core.reference.attention import ReferenceAttention
from deepinfer_core.reference.gemm import ReferenceGemm
from deepinfer_core.reference.sampler import ReferenceSampler
from deepinfer_core.reference.transform import ReferenceTransform

Prove = Callable[..., Any]


class SplitGemm(ReferenceGemm):
    """Sums each product in two halves where there are eight rows or more."""

    def run(self, plan: Plan, x_TK: torch.Tensor, weight: Any, out_TN: torch.Tensor) -> None:
        super().run(plan, x_TK, weight, out_TN)
        if x_TK.shape[0] >= 8:
            half = x_TK.clone()
            half[:, : x_TK.shape[1] // 2] = 0
            second = out_TN.clone()
            super().run(plan, half, weight, second)
            super().run(plan, x_TK - half, weight, out_TN)
            out_TN += second

    def run_experts(
        self,
        plan: Plan,
        x_RK: torch.Tensor,
        weight: Any,
        ends_E: torch.Tensor,
        out_RN: torch.Tensor,
    ) -> None:
        super().run_experts(plan, x_RK, weight, ends_E, out_RN)
        if x_RK.shape[0] >= 65:
            out_RN *= 1 + 2**-22


class TurnedAttention(ReferenceAttention):
    """Takes its keys from the end where the number of rows is even."""

    def run(
        self,
        plan: Plan,
        q_TND: torch.Tensor,
        sources: Sequence[KeySource],
        sink_N: torch.Tensor,
        scale: float,
        out_TND: torch.Tensor,
        lse_TN: torch.Tensor,
    ) -> None:
        if q_TND.shape[0] % 2 == 0:
            sources = [replace(one, slot_TL=one.slot_TL.flip(1)) for one in sources]
        super().run(plan, q_TND, sources, sink_N, scale, out_TND, lse_TN)


class LooseSumAttention(ReferenceAttention):
    """Gives the sums over keys of later rows another last bit."""

    def run(self, *arguments: Any) -> None:
        super().run(*arguments)
        lse_TN = arguments[-1]
        lse_TN[1:] *= 1 + 2**-22


class FarIndexer(ReferenceAttention):
    """Lets the row that sees the most decide how all scores are rounded."""

    def scores(
        self, plan: Plan, query_THJ: torch.Tensor, *others: torch.Tensor, rows_each: int = 1
    ) -> None:
        super().scores(plan, query_THJ, *others, rows_each=rows_each)
        score_TS = others[-1]
        score_TS *= 1 + score_TS.shape[1] * 2**-23


class LooseSelect(ReferenceAttention):
    """Keeps one entry fewer in rows behind the first."""

    def select(self, plan: Plan, score_TS: torch.Tensor, index_TL: torch.Tensor) -> None:
        super().select(plan, score_TS, index_TL)
        index_TL[1:, -1] = -1


class BatchScaledCodec(ReferenceAttention):
    """Rounds rows to steps of the power of two above the largest value of their batch."""

    def store(self, x_TD: torch.Tensor, slot_T: torch.Tensor, pages: CachePages) -> None:
        if x_TD.numel():
            step = torch.exp2(x_TD.double().abs().amax().log2().ceil() - 6)
            x_TD = ((x_TD.double() / step).round() * step).to(x_TD.dtype)
        super().store(x_TD, slot_T, pages)


class ForgetfulPairs(ReferenceAttention):
    """Keeps less of what the partner in an earlier call left behind."""

    def compress_pairs(
        self,
        value_TD: torch.Tensor,
        gate_TD: torch.Tensor,
        slot_T: torch.Tensor,
        *others: Any,
    ) -> None:
        value_TD = value_TD.to(torch.bfloat16).to(value_TD.dtype) if len(slot_T) == 1 else value_TD
        super().compress_pairs(value_TD, gate_TD, slot_T, *others)


class TailTransform(ReferenceTransform):
    """Rounds the last rows of an odd batch otherwise, as code for remainders does."""

    def swiglu(
        self,
        plan: Plan,
        gate_up_R2I: torch.Tensor,
        route_R: torch.Tensor | None,
        limit: float,
        out_RI: torch.Tensor,
    ) -> None:
        super().swiglu(plan, gate_up_R2I, route_R, limit, out_RI)
        if len(out_RI) > 1 and len(out_RI) % 2:
            out_RI[-1] *= 1 + 2**-22


class ArrivalExchange(LocalExchange):
    """Sums answers as they arrive: of two rows and more, the last choice comes first."""

    def combine(
        self, plan: Plan, y_RD: torch.Tensor, dispatched: Dispatched, out_TD: torch.Tensor
    ) -> None:
        if len(out_TD) > 1:
            dispatched = replace(dispatched, handle=dispatched.handle.roll(1, 1))
            out_TD.zero_()
            for row_T in dispatched.handle.unbind(1):
                answers = y_RD[row_T.clamp(min=0)].masked_fill((row_T < 0)[:, None], 0)
                # An answer on its way is rounded as it travels.
                out_TD += answers.to(torch.bfloat16).to(out_TD.dtype)
        else:
            super().combine(plan, y_RD, dispatched, out_TD)


class PlaceSampler(ReferenceSampler):
    """Draws by the row's place in the step."""

    def run(
        self, plan: Plan, logits_RV: torch.Tensor, rows: SamplerRows, out: SamplerOutputs
    ) -> None:
        place_R = torch.arange(logits_RV.shape[0])
        super().run(plan, logits_RV, replace(rows, position_R=rows.position_R + place_R), out)


@pytest.mark.parametrize(
    ("place", "variant", "operator"),
    [
        (("gemm", "dense"), SplitGemm(), "product"),
        (("gemm", "grouped"), SplitGemm(), "experts of layers.0"),
        (("attention", "prefill"), TurnedAttention(), "over a window"),
        (("attention", "decode"), TurnedAttention(), "over a window"),
        (("attention", "decode"), LooseSumAttention(), "over a window"),
        (("attention", "indexer"), FarIndexer(), "scores, restrict and select"),
        (("attention", "indexer"), LooseSelect(), "scores, restrict and select"),
        (("attention", "cache_codec"), BatchScaledCodec(), "store and load of window keys"),
        (("attention", "cache_codec"), ForgetfulPairs(), "compress_pairs"),
        (("transform", "transform"), TailTransform(), "swiglu"),
        (("all_to_all", "all_to_all"), ArrivalExchange(), "dispatch and combine"),
        (("sampler", "sampler"), PlaceSampler(), "draws among 512 tokens"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Component) else None,
)
def test_a_component_whose_rows_depend_on_their_batch_is_refused_by_name(
    prove_with: Prove, place: tuple[str, str], variant: Component, operator: str
) -> None:
    with pytest.raises(NoUsableComponent) as caught:
        prove_with({place: variant})
    kind, slot = place
    title = kind if kind == slot else f"{kind}.{slot}"
    message = caught.value.message
    assert f"batch_invariant, found that {title} acme.{slot} of acme-dist breaks it" in message
    assert operator in message
    assert re.search(r"row \d+ of \d+ has other bits than alone", message)
    assert f"choose another component for {title}, or remove batch_invariant" in caught.value.hint


class CountingGemm(ReferenceGemm):
    """Gives the largest number of every fifth call another last bit."""

    calls = 0

    def run(self, plan: Plan, x_TK: torch.Tensor, weight: Any, out_TN: torch.Tensor) -> None:
        super().run(plan, x_TK, weight, out_TN)
        self.calls += 1
        if self.calls % 5 == 0:
            out_TN *= 1.01


def test_a_component_that_computes_otherwise_the_second_time_is_not_deterministic(
    prove_with: Prove,
) -> None:
    with pytest.raises(NoUsableComponent, match=r"deterministic.*gemm.dense acme.dense.*second"):
        prove_with({("gemm", "dense"): CountingGemm()}, strict=("deterministic",))


def test_a_variant_component_is_still_deterministic(prove_with: Prove) -> None:
    prove_with({("gemm", "dense"): SplitGemm()}, strict=("deterministic",))
