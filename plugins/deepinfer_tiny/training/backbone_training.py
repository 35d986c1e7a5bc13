"""What is one training step of the backbone, and how does a run of them go?

On an NVIDIA device the whole step (forward, backward, both optimisers, expert balance) is one
captured graph for short rows and one for long rows; rates, dropout and flags are tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .distillation import soft_losses
from .dropout import Dropout
from .evaluate import token_losses
from .network import Network
from .optimiser import Optimiser
from .positions import Batch

__all__ = ["BackboneTrainer", "Schedule", "Settings", "is_backbone"]

Tensors = dict[str, torch.Tensor]
_INDEX_WEIGHT = 0.1


def is_backbone(name: str) -> bool:
    """Whether a stacked tensor belongs to the backbone."""
    return not name.startswith("draft")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Choices of one run."""

    residual_dropout: float = 0.1
    engram_dropout: float = 0.3
    decay: float = 0.1
    muon_rate: float = 0.02
    adam_rate: float = 4e-3
    soft_share: float = 0.7  # of the loss, when there are teachers


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What changes over the run, as functions of the fraction done in [0, 1]."""

    warm_up: float = 0.03
    constant_until: float = 0.4
    dense_until: float = 0.1
    floor: float = 0.03

    def rate(self, done: float) -> float:
        """Learning rate relative to its peak."""
        if done < self.warm_up:
            return max(done / self.warm_up, 0.02)
        if done < self.constant_until:
            return 1.0
        left = (1.0 - done) / (1.0 - self.constant_until)
        return self.floor + (1.0 - self.floor) * max(left, 0.0)

    def balance_speed(self, done: float) -> float:
        """Step of the expert biases: coarse, then fine, then frozen."""
        return 0.01 if done < 0.5 else 0.002 if done < 0.9 else 0.0


def _frozen(stacked: Tensors, device: torch.device) -> Tensors:
    """A teacher's weights; gradients stay on to share the compiled stages, none is ever used."""
    return {
        k: v.to(device).requires_grad_("gate_bias" not in k)
        for k, v in stacked.items()
        if is_backbone(k)
    }


class BackboneTrainer:
    """Parameters, optimiser state and the captured steps."""

    def __init__(
        self,
        network: Network,
        stacked: Tensors,
        settings: Settings,
        teachers: tuple[Tensors, ...] = (),
    ) -> None:
        """Move the weights to the device of the network's tables and set up the optimiser.

        Args:
            network: backbone with compiled or plain stages.
            stacked: starting values.
            settings: choices of the run.
            teachers: stacked weights of networks to learn from.
        """
        device = network.tables.key_V.device
        self.network, self.settings, self.device = network, settings, device
        self.params = {k: v.to(device) for k, v in stacked.items() if is_backbone(k)}
        self.fixed = {k for k in self.params if "gate_bias" in k}
        learnt = {k: v.requires_grad_() for k, v in self.params.items() if k not in self.fixed}
        self.optimiser = Optimiser(learnt, settings.muon_rate, settings.adam_rate, settings.decay)
        self.dropout = Dropout(
            residual=torch.full((), settings.residual_dropout, device=device),
            engram=torch.full((), settings.engram_dropout, device=device),
        )
        self.dense = torch.ones((), device=device)
        self.speed = torch.zeros((), device=device)
        # Sums over steps: cross entropy, index loss, steps, largest and smallest expert load.
        self.meter = torch.zeros(5, device=device)
        self.teachers = [_frozen(t, device) for t in teachers]
        self.soft = (
            soft_losses if device.type == "cpu" else torch.compile(soft_losses, dynamic=False)
        )
        self.losses = (
            token_losses if device.type == "cpu" else torch.compile(token_losses, dynamic=False)
        )
        self._inputs: dict[tuple[int, int], torch.Tensor] = {}
        self._graphs: dict[tuple[int, int], Any] = {}

    def prepared(self) -> Tensors:
        """Weights as a forward pass sees them."""
        return self.network.stages.prepare(self.params, self.network.precision)

    def _step(self, tokens_BT: torch.Tensor) -> None:
        config = self.network.config
        w = self.prepared()
        batch = Batch.packed(tokens_BT, config.bos_token_id)
        taught = self._taught(batch)  # before the pass below keeps its activations
        out = self.network(w, batch, self.dropout, self.dense)
        loss, mask = self.losses(
            out.hidden_NC, w["head"], tokens_BT, config.bos_token_id, config.pad_token_id
        )
        ce = loss.sum() / mask.sum()
        total = ce
        if self.teachers:
            share = self.settings.soft_share
            soft = self.soft(out.hidden_NC, w["head"], *taught) * mask.flatten()
            total = (1 - share) * ce + share * soft.sum() / mask.sum()
        (total + _INDEX_WEIGHT * out.index_loss).backward()
        self.optimiser.step()
        with torch.no_grad():
            load = out.load_LE / out.load_LE.mean(1, keepdim=True)
            bias = self.params["blocks.gate_bias"]
            bias.add_(torch.sign(1.0 - load) * self.speed)
            bias.sub_(bias.mean(1, keepdim=True))
            values = (ce, out.index_loss, ce * 0 + 1, load.max(), load.min())
            self.meter.add_(torch.stack([v.detach() for v in values]))

    def _taught(self, batch: Batch) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Final states and output matrices of the teachers."""
        states, heads = [], []
        sparse, none = torch.zeros_like(self.dense), Dropout.none(self.device)
        for teacher in self.teachers:
            weights = self.network.stages.prepare(teacher, self.network.precision)
            states.append(self.network(weights, batch, none, sparse).hidden_NC.detach())
            heads.append(weights["head"].detach())
        return states, heads

    def step(self, tokens_BT: torch.Tensor) -> None:
        """Train on one batch; the first batches of a shape run uncaptured."""
        shape = tuple(tokens_BT.shape)
        if self.device.type == "cpu":
            self.optimiser.clear()
            self._step(tokens_BT)
            return
        if shape not in self._graphs:
            self._capture(shape, tokens_BT)
            return
        self._inputs[shape].copy_(tokens_BT)
        self._graphs[shape].replay()

    def _capture(self, shape: tuple[int, int], tokens_BT: torch.Tensor) -> None:
        inputs = tokens_BT.to(torch.int64).clone()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.optimiser.clear()
                self._step(inputs)
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.optimiser.clear()
        graph = torch.cuda.CUDAGraph()
        pool = next(iter(self._graphs.values())).pool() if self._graphs else None
        with torch.cuda.graph(graph, pool=pool):
            self._step(inputs)
        self._inputs[shape], self._graphs[shape] = inputs, graph

    def set_fraction(self, schedule: Schedule, done: float) -> None:
        """Set rates and flags for the step that follows."""
        self.optimiser.set_rate(schedule.rate(done))
        self.dense.fill_(1.0 if done < schedule.dense_until else 0.0)
        self.speed.fill_(schedule.balance_speed(done))

    def read_meter(self) -> dict[str, float]:
        """Means since the last reading."""
        values = self.meter.tolist()
        self.meter.zero_()
        names = ("ce", "index_kl", "load_max", "load_min")
        kept = (values[0], values[1], values[3], values[4])
        return {n: v / max(values[2], 1) for n, v in zip(names, kept, strict=True)}

    def release_graphs(self) -> None:
        """Free the captured graphs' memory."""
        self._graphs.clear()
        self._inputs.clear()
        self.optimiser.clear()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def save(self, file: Path, progress: dict[str, Any]) -> None:
        """Write everything that a later piece of the run needs."""
        torch.save({"params": self.params, "optimiser": self.optimiser.state(), **progress}, file)

    def load(self, file: Path) -> dict[str, Any]:
        """Read what `save` wrote; returns the progress."""
        state = torch.load(file, map_location=self.device, weights_only=False)
        with torch.no_grad():
            for k, v in state.pop("params").items():
                self.params[k].copy_(v)
        self.optimiser.load_state(state.pop("optimiser"))
        return state
