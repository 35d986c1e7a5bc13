"""What do row operators hand to sublayers and get from them?

Shapes: T rows, D width, S streams, M mixes.
"""

from dataclasses import dataclass

import torch

__all__ = ["Activations", "MixWeights", "Mixes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """Input rows of a sublayer.

    Attributes:
        plain_TD: compute dtype, for what takes rows as they are.
        rounded_TD: for quantised products; the same tensor where these round themselves.
    """

    plain_TD: torch.Tensor
    rounded_TD: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class MixWeights:
    """What a sublayer computes its hyper-connection mixes with.

    Attributes:
        projection: of the flattened trunk, in the form that the component has prepared.
        base_M: offsets, fp32.
        scale_3: fp32 factors of the pre, post and comb mixes.
    """

    projection: torch.Tensor
    base_M: torch.Tensor
    scale_3: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixes:
    """Hyper-connection mixes of one sublayer, in the accumulation dtype.

    Attributes:
        pre_TS: how the *next* sublayer's input is collapsed.
        post_TS: how this sublayer's output is spread.
        comb_TSS: how the streams are mixed, [T, source, destination].
    """

    pre_TS: torch.Tensor
    post_TS: torch.Tensor
    comb_TSS: torch.Tensor
