"""In which form does the model hand each kind of weight to its components?

Products get weights as the checkpoint stores them. Norms, mixes, sinks and biases are few: they are
widened to the accumulation dtype once. Projections of mixes are handed over in that dtype.
"""

from collections.abc import Callable

import torch

from deepinfer_core.errors import NotSupported
from deepinfer_core.model.activations import MixWeights
from deepinfer_core.model.operators import Linear, torch_dtype
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.model.tensor_source import TensorSource
from deepinfer_core.numeric import QuantTensor

__all__ = ["WeightReader", "stacked"]


class WeightReader:
    """Reads weights by name for one choice of components.

    Args:
        source: the checkpoint.
        parts: components and numerics.
    """

    def __init__(self, source: TensorSource, parts: ModelParts) -> None:
        self._source = source
        self._gemm = parts.dense
        self._transform = parts.transform
        self._numerics = parts.numerics
        self._product_format = parts.product_format
        self._device = parts.device.torch_device
        self._reachable = parts.device.reachable

    def vector(self, name: str) -> torch.Tensor:
        """A small weight, in the accumulation dtype on the device."""
        return self._source.tensor(name).to(self._device, torch_dtype(self._numerics.accumulate))

    def mixes(self, prefix: str) -> MixWeights:
        """The hyper-connection weights of one sublayer, e.g. of ``layers.0.hc_attn_``."""
        return MixWeights(
            projection=self._transform.prepare_mixes(self.vector(f"{prefix}fn")),
            base_M=self.vector(f"{prefix}base"),
            scale_3=self.vector(f"{prefix}scale"),
        )

    def table(self, name: str) -> QuantTensor:
        """A matrix whose rows are looked up, as stored, on the device."""
        return self._placed(self._source.quant(name))

    def host_table(self, name: str) -> QuantTensor:
        """A matrix of which few rows are looked up, as stored, wherever the device reads it."""
        return _moved(self._source.table(name), self._reachable)

    def experts(self, prefix: str) -> tuple[QuantTensor, QuantTensor]:
        """The stacked routed experts below a prefix, on the device."""
        gate_up, down = self._source.experts(prefix)
        return self._placed(gate_up), self._placed(down)

    def quantised(self, *names: str, out_dtype: str | None = None, groups: int = 1) -> Linear:
        """A product whose input is rounded to FP8, of one weight or several stacked ones.

        Args:
            names: of the weights, stacked along their rows.
            out_dtype: name of the result's dtype; None for the compute dtype.
            groups: independent products.

        Raises:
            NotSupported: weights in blocks of 32 rows cannot be stacked where a block is cut.
        """
        return Linear(
            self._gemm,
            stacked([self.table(name) for name in names]),
            activation_format=self._product_format,
            out_dtype=out_dtype or self._numerics.compute,
            groups=groups,
        )

    def plain(self, name: str, *, out_dtype: str | None = None) -> Linear:
        """A product whose input is used as it is."""
        return Linear(
            self._gemm,
            self.table(name),
            activation_format=self._numerics.compute,
            out_dtype=out_dtype or self._numerics.compute,
        )

    def _placed(self, weight: QuantTensor) -> QuantTensor:
        return _moved(weight, lambda part: part.to(self._device))


def _moved(weight: QuantTensor, move: Callable[[torch.Tensor], torch.Tensor]) -> QuantTensor:
    return QuantTensor(
        data=move(weight.data),
        scale=None if weight.scale is None else move(weight.scale),
        format=weight.format,
    )


def stacked(weights: list[QuantTensor]) -> QuantTensor:
    """Stack matrices of one format along their rows.

    Raises:
        NotSupported: formats differ, or a block of rows that share scales would be cut.
    """
    first, *others = weights
    if not others:
        return first
    group_rows = max(first.number_format.group_rows, 1)
    is_cut = any(weight.shape[0] % group_rows for weight in weights[:-1])
    if is_cut or any(weight.format != first.format for weight in others):
        raise NotSupported(
            f"asked to stack weights of {[weight.shape[0] for weight in weights]} rows in"
            f" {[weight.format for weight in weights]}, found blocks of {group_rows} rows",
            hint="use one format, and row counts that are multiples of its blocks",
        )
    scales = [weight.scale for weight in weights if weight.scale is not None]
    return QuantTensor(
        data=torch.cat([weight.data for weight in weights]),
        scale=torch.cat(scales) if scales else None,
        format=first.format,
    )
