"""How does the drafter learn from the finished backbone?

Backbone features and final states of all rows are computed once. A step draws anchors, drafts with
teacher-forced previous tokens, and moves the draft distribution towards the backbone's and
towards its greedy choice. The confidence head learns whether the greedy draft equals the greedy
choice, only where all earlier drafts of the block did.

Shapes: R rows, T tokens, A anchors a row, P block positions, V vocabulary, C hidden width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from .drafter import context_keys, propose, sequential
from .dropout import Dropout
from .network import Network
from .optimiser import Optimiser
from .positions import Batch
from .precision import prepare

__all__ = ["DraftTrainer", "Material", "batches", "block_results"]

Tensor = torch.Tensor
Tensors = dict[str, Tensor]
_POSITION_DECAY = 0.9
_CONFIDENCE_WEIGHT = 0.2
_BALANCE_SPEED = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """Rows with what the frozen backbone computed for them."""

    tokens_RT: Tensor
    features_RTX: Tensor
    hidden_RTC: Tensor

    def select(self, rows: Tensor) -> Material:
        """The given rows."""
        return Material(
            tokens_RT=self.tokens_RT[rows],
            features_RTX=self.features_RTX[rows],
            hidden_RTC=self.hidden_RTC[rows],
        )


def batches(count: int, rows: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Row numbers of endless shuffled batches."""
    while True:
        order = torch.randperm(count, generator=generator)
        yield from order[: count - count % rows].split(rows)


def anchor_rows(batch: Batch, pad: int, anchors: int) -> tuple[Tensor, Tensor]:
    """Random anchors [R, A] (places after the first of a document) and which are usable."""
    tokens = batch.tokens_BT
    usable = (batch.position_BT >= 1) & (tokens != pad)
    weight = torch.rand(tokens.shape, device=tokens.device) * usable
    anchor = weight.topk(anchors, dim=1).indices
    return anchor, usable.gather(1, anchor)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockResults:
    """Drafts of a set of anchors against the backbone."""

    logits_RAPV: Tensor
    confidence_RAP: Tensor
    target_RAPV: Tensor  # logits of the backbone
    text_RAP: Tensor  # the tokens that follow
    valid_RAP: Tensor  # the following token exists in the document
    load_LE: Tensor  # tokens for each expert of each draft layer


def block_results(
    network: Network, w: Tensors, material: Material, anchor_RA: Tensor, dropout: Dropout
) -> BlockResults:  # fmt: skip
    """Draft after every anchor with the text's own tokens as previous ones.

    Args:
        network: for sizes and precision.
        w: prepared draft weights, ``embed`` and ``head`` among them.
        material: rows of the batch.
        anchor_RA: rows of the golden tokens.
        dropout: rates.
    """
    config, tokens = network.config, material.tokens_RT
    batch = Batch.packed(tokens, config.bos_token_id)
    keys = context_keys(network, w, material.features_RTX.flatten(0, 1), batch)
    golden = tokens.gather(1, anchor_RA)
    block = propose(network, w, keys, batch, anchor_RA, golden, dropout)
    place = anchor_RA.unsqueeze(-1) + torch.arange(config.dspark_block_size, device=tokens.device)
    last = tokens.shape[1] - 1
    row = torch.arange(len(tokens), device=tokens.device)[:, None, None]
    previous = tokens[row, place.clamp(max=last)]
    following = (place + 1).clamp(max=last)
    text = tokens[row, following]
    same = batch.doc_BT[row, following] == batch.doc_BT.gather(1, anchor_RA).unsqueeze(-1)
    logits, confidence = sequential(w, block.raw_BAPC, block.base_BAPV, previous)
    hidden = material.hidden_RTC[row, place.clamp(max=last)]
    target = hidden.float() @ w["head"].float().T
    return BlockResults(
        logits_RAPV=logits, confidence_RAP=confidence, target_RAPV=target, text_RAP=text,
        valid_RAP=same & (place < last) & (text != config.pad_token_id),
        load_LE=block.load_LE,
    )  # fmt: skip


class DraftTrainer:
    """Draft parameters, their optimiser and one captured step."""

    def __init__(
        self, network: Network, params: Tensors, frozen: Tensors, rates: tuple[float, float],
        greedy_share: float, anchors: int,
    ) -> None:  # fmt: skip
        """Set up training of ``params`` (names that start with ``draft``).

        Args:
            network: for sizes and precision.
            params: stacked draft tensors on the device.
            frozen: prepared ``embed`` and ``head`` of the backbone.
            rates: peak learning rates of Muon and AdamW.
            greedy_share: weight of the greedy target against the whole distribution.
            anchors: anchors of each row and step.
        """
        self.network, self.frozen, self.params = network, frozen, params
        learnt = {k: v.requires_grad_() for k, v in params.items() if "gate_bias" not in k}
        self.optimiser = Optimiser(learnt, *rates, decay=0.05)
        device = frozen["embed"].device
        self.dropout = Dropout.none(device)
        self.share, self.anchors = greedy_share, anchors
        # Sums: divergence, greedy loss, confidence loss, greedy hit of the first draft,
        # accepted drafts a block, steps.
        self.meter = torch.zeros(6, device=device)
        self._graph, self._inputs = None, None

    def prepared(self) -> Tensors:
        """Draft weights as a pass sees them, with the backbone's embedding and head."""
        return {**prepare(self.params, self.network.precision), **self.frozen}

    def _step(self, material: Material) -> None:
        config = self.network.config
        batch = Batch.packed(material.tokens_RT, config.bos_token_id)
        anchor, usable = anchor_rows(batch, config.pad_token_id, self.anchors)
        w = self.prepared()
        r = block_results(self.network, w, material, anchor, self.dropout)
        valid = r.valid_RAP & usable.unsqueeze(-1)
        place = torch.arange(config.dspark_block_size, device=anchor.device)
        weight = valid * _POSITION_DECAY**place
        log_q = torch.log_softmax(r.logits_RAPV, dim=-1)
        log_p = torch.log_softmax(r.target_RAPV, dim=-1)
        divergence = (log_p.exp() * (log_p - log_q)).sum(-1)
        best = r.target_RAPV.argmax(-1)
        greedy = -log_q.gather(-1, best.unsqueeze(-1)).squeeze(-1)
        draft = r.logits_RAPV.detach().argmax(-1)
        hit, agrees = draft == best, draft == r.text_RAP
        reached = F.pad(agrees[..., :-1].long().cumprod(-1), (1, 0), value=1).bool() & valid
        judged = F.binary_cross_entropy_with_logits(r.confidence_RAP, hit.float(), reduction="none")
        total = weight.sum()
        divergence, greedy = (divergence * weight).sum() / total, (greedy * weight).sum() / total
        confidence = (judged * reached).sum() / reached.sum()
        loss = (1 - self.share) * divergence + self.share * greedy
        (loss + _CONFIDENCE_WEIGHT * confidence).backward()
        self.optimiser.step()
        with torch.no_grad():
            bias = self.params["draft_blocks.gate_bias"]
            load = r.load_LE / r.load_LE.mean(1, keepdim=True)
            bias.add_(torch.sign(1.0 - load) * _BALANCE_SPEED)
            bias.sub_(bias.mean(1, keepdim=True))
        first = (hit[..., 0] & valid[..., 0]).sum() / valid[..., 0].sum()
        accepted = (hit & valid).long().cumprod(-1).sum(-1).float().mean()
        values = (divergence, greedy, confidence, first, accepted, total * 0 + 1)
        self.meter.add_(torch.stack([v.detach().float() for v in values]))

    def step(self, material: Material) -> None:
        """Train on one batch of rows; captured after the first on an NVIDIA device."""
        if self.meter.device.type == "cpu":
            self.optimiser.clear()
            self._step(material)
            return
        if self._graph is None:
            self._capture(material)
            return
        for name in ("tokens_RT", "features_RTX", "hidden_RTC"):
            getattr(self._inputs, name).copy_(getattr(material, name))
        self._graph.replay()

    def _capture(self, material: Material) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.optimiser.clear()
                self._step(material)
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self.optimiser.clear()
        self._graph, self._inputs = torch.cuda.CUDAGraph(), material
        with torch.cuda.graph(self._graph):
            self._step(material)

    def read_meter(self) -> dict[str, float]:
        """Means since the last reading."""
        values = self.meter.tolist()
        self.meter.zero_()
        names = ("divergence", "greedy", "confidence", "first_hit", "accepted")
        return {n: v / max(values[5], 1) for n, v in zip(names, values, strict=False)}
