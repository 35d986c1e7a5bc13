"""How do two sublayers and four residual streams make a layer?

The trunk has several streams. A sublayer reads a weighted sum of them (*pre*), and its output is
added to all of them (*post*) while they are mixed with each other (*comb*). The weights come from
the trunk itself. They are shifted by half a layer: a sublayer's input is collapsed by the pre mixes
that the *previous* sublayer computed, before that sublayer's output was added; post and comb are
its own.

Shapes: T rows, S streams, D hidden width.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from deepinfer_core.interfaces.device import Device
from deepinfer_core.model.activations import Activations, Mixes, MixWeights
from deepinfer_core.model.context import Probe
from deepinfer_core.model.mixture import Mixture
from deepinfer_core.model.row_operators import RowOperators

__all__ = ["Layer", "Sublayer", "first_pre_mix"]

Attend = Callable[[Activations], torch.Tensor]
"""From the normed input to the attention's output, [T, D]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sublayer:
    """What surrounds an attention or a mixture.

    Attributes:
        mixes: weights of its hyper-connections.
        norm_D: weight of the norm in front of it.
    """

    mixes: MixWeights
    norm_D: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer without its attention, which differs between backbone and drafter.

    Attributes:
        name: start of its tensor names without the dot, for probes.
        device: works out mixes beside the sublayers, which need them when they end.
        rows: row operators.
        attention: surroundings of the attention.
        feed_forward: surroundings of the mixture.
        mixture: the experts.
    """

    name: str
    device: Device
    rows: RowOperators
    attention: Sublayer
    feed_forward: Sublayer
    mixture: Mixture

    def __call__(
        self,
        trunk_TSD: torch.Tensor,
        pre_TS: torch.Tensor,
        attend: Attend,
        image_T: torch.Tensor,
        probe: Probe | None = None,
    ) -> torch.Tensor:
        """Run both sublayers on the trunk, in place.

        Args:
            trunk_TSD: residual streams, overwritten.
            pre_TS: pre mixes of the previous sublayer.
            attend: the layer's attention.
            image_T: rows inside an image span.
            probe: receives mixes and routing.

        Returns:
            The pre mixes for the next sublayer.
        """
        if probe is not None:
            probe(f"{self.name}.trunk", trunk_TSD)
        mixes_of = self._mixes(trunk_TSD, self.attention)
        attended_TD = attend(self.rows.enter(trunk_TSD, pre_TS, self.attention.norm_D))
        mixes = mixes_of()
        if probe is not None:
            for kind in ("pre_TS", "post_TS", "comb_TSS"):
                probe(f"{self.name}.attn.{kind.split('_')[0]}", getattr(mixes, kind))
        x = self.rows.expand_enter(trunk_TSD, attended_TD, mixes, self.feed_forward.norm_D)
        mixes_of = self._mixes(trunk_TSD, self.feed_forward)
        routed_TD, shared_TD = self.mixture(x, image_T, self.name, probe)
        next_mixes = mixes_of()
        self.rows.add_expand(trunk_TSD, routed_TD, shared_TD, next_mixes)
        return next_mixes.pre_TS

    def _mixes(self, trunk_TSD: torch.Tensor, sublayer: Sublayer) -> Callable[[], Mixes]:
        """Begin with the mixes of a trunk, which stays as it is until they are asked for."""
        return self.device.beside(lambda: self.rows.mixes(trunk_TSD, sublayer.mixes))

    def attention_input(self, trunk_TSD: torch.Tensor, pre_TS: torch.Tensor) -> torch.Tensor:
        """What the layer's compressor would be given, [T, D]; the trunk stays as it is."""
        return self.rows.collapse_norm(trunk_TSD, pre_TS, self.attention.norm_D)


def first_pre_mix(trunk_TSD: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The pre mixes in front of the first sublayer: the first stream alone, [T, S]."""
    pre_TS = torch.zeros(trunk_TSD.shape[:2], dtype=dtype, device=trunk_TSD.device)
    pre_TS[:, 0].fill_(1)
    return pre_TS
