"""How do gradients change the weights?

Muon (momentum, orthogonalised by five Newton-Schulz steps) for the matrices inside the network,
AdamW for everything else. Learning rates are tensors, so one captured graph serves all of a
schedule.
"""

from __future__ import annotations

import torch

__all__ = ["Optimiser", "uses_muon"]

Tensors = dict[str, torch.Tensor]

_MUON = {"wq_a", "wq_b", "wkv", "wo_a", "wo_b", "w1", "w2", "w3", "main_proj"}
_MUON |= {"shared_w1", "shared_w2", "shared_w3", "comp_wkv", "comp_wgate"}
_QUIET = {"head", "gate"}  # half the learning rate
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
_MOMENTUM = 0.95
_BETAS = (0.9, 0.97)
_CLIP = 1.0
_TABLE_BOOST = 3.0  # a table row gets a gradient only when its n-gram occurs


def uses_muon(name: str) -> bool:
    """Whether a stacked tensor is updated by Muon."""
    return name.rsplit(".", 1)[-1] in _MUON


def _orthogonal(update: torch.Tensor) -> torch.Tensor:
    """Approximate nearest semi-orthogonal matrix of each [out, in] matrix, bf16."""
    a, b, c = _NEWTON_SCHULZ
    x = update.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.float().norm(dim=(-2, -1), keepdim=True) + 1e-7).to(x.dtype)
    for _ in range(5):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Optimiser:
    """Both update rules over a set of named parameters."""

    def __init__(self, params: Tensors, muon_rate: float, adam_rate: float, decay: float) -> None:
        """Create the state.

        Args:
            params: leaf tensors that require gradients.
            muon_rate: peak learning rate of Muon.
            adam_rate: peak learning rate of AdamW.
            decay: weight decay as a multiple of the learning rate, for matrices.
        """
        self._muon = {k: v for k, v in params.items() if uses_muon(k)}
        self._momentum = {k: torch.zeros_like(v) for k, v in self._muon.items()}
        self._decay = decay
        device = next(iter(params.values())).device
        self._muon_peak, self._muon_rate = muon_rate, torch.zeros((), device=device)
        groups = []
        for k, v in params.items():
            if k in self._muon:
                continue
            leaf = k.rsplit(".", 1)[-1]
            factor = 0.5 if leaf in _QUIET or leaf.startswith("hc_") else 1.0
            factor = _TABLE_BOOST if "table" in leaf else factor
            factor = 0.1 if leaf == "confidence" else factor
            keeps = v.ndim < 2 or "norm" in leaf or "table" in leaf or leaf.startswith("hc_")
            rate = torch.zeros((), device=device)
            groups.append(
                {"params": [v], "lr": rate, "weight_decay": 0.0 if keeps else decay,
                 "peak": adam_rate * factor}
            )  # fmt: skip
        self._adam = torch.optim.AdamW(groups, betas=_BETAS, fused=True, capturable=True)
        self._adam_params = [v for k, v in params.items() if k not in self._muon]

    def set_rate(self, scale: float) -> None:
        """Set all learning rates to ``scale`` times their peak; outside a captured graph."""
        self._muon_rate.fill_(self._muon_peak * scale)
        for group in self._adam.param_groups:
            group["lr"].fill_(group["peak"] * scale)

    def state(self) -> dict[str, object]:
        """Everything to resume with."""
        return {"momentum": self._momentum, "adam": self._adam.state_dict()}

    def load_state(self, state: dict[str, object]) -> None:
        """Inverse of `state`, before any graph is captured."""
        for k, v in state["momentum"].items():
            self._momentum[k].copy_(v)
        self._adam.load_state_dict(state["adam"])

    def clear(self) -> None:
        """Forget gradients, so that the next backward pass allocates them."""
        for p in [*self._muon.values(), *self._adam_params]:
            p.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Apply the gradients; may be captured."""
        for k, p in self._muon.items():
            momentum = self._momentum[k]
            momentum.lerp_(p.grad, 1 - _MOMENTUM)
            update = _orthogonal(p.grad.lerp(momentum, _MOMENTUM))
            scale = max(1.0, p.shape[-2] / p.shape[-1]) ** 0.5
            p.mul_(1 - self._muon_rate * self._decay)
            p.sub_(update * (self._muon_rate * scale))
        torch.nn.utils.clip_grad_norm_(self._adam_params, _CLIP, foreach=True)
        self._adam.step()
