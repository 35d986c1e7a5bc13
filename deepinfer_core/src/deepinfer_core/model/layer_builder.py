"""How do the weights of one layer become the layer?"""

import torch

from deepinfer_core.interfaces.attention import IndexerSpec
from deepinfer_core.interfaces.transform import EngramHash
from deepinfer_core.model.backbone_layer import BackboneLayer
from deepinfer_core.model.compressor import Compressor, IndexKeys
from deepinfer_core.model.config import TextConfig
from deepinfer_core.model.drafter import DraftLayer
from deepinfer_core.model.engram import Engram
from deepinfer_core.model.layer import Layer, Sublayer
from deepinfer_core.model.layer_plan import LayerPlan
from deepinfer_core.model.mixture import Experts, Mixture, Router, SharedExpert
from deepinfer_core.model.operators import Planned
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.model.projections import AttentionProjections
from deepinfer_core.model.row_operators import RowOperators
from deepinfer_core.model.selector import Selector
from deepinfer_core.model.sparse_attention import StepAttention
from deepinfer_core.model.weight_reader import WeightReader

__all__ = ["LayerBuilder"]


class LayerBuilder:
    """Builds layers that share row operators and attention plans.

    Args:
        weights: where weights come from.
        parts: components and numerics.
        text: widths and constants.
        rows: row operators.
        attention: attention of a backbone step.
    """

    def __init__(
        self,
        weights: WeightReader,
        parts: ModelParts,
        text: TextConfig,
        rows: RowOperators,
        attention: StepAttention,
    ) -> None:
        self._weights = weights
        self._parts = parts
        self._text = text
        self._rows = rows
        self._attention = attention
        self._index_spec = IndexerSpec(
            heads=text.index_n_heads,
            width=text.index_head_dim,
            top_entries=text.index_topk,
            block_entries=text.candidate_block_size,
            top_blocks=text.candidate_topk_blocks,
        )
        self._index_plan = Planned(
            lambda max_rows: parts.indexer.plan_index(self._index_spec, max_rows)
        )

    def backbone(self, plan: LayerPlan, hashing: EngramHash | None) -> BackboneLayer:
        """Build a layer of the backbone; ``hashing`` belongs to its Engram, if it has one."""
        return BackboneLayer(
            plan=plan,
            layer=self._layer(plan),
            projections=self._projections(plan),
            attention=self._attention,
            compressor=self._compressor(plan) if plan.has_compressor else None,
            selector=self._selector(plan) if plan.has_indexer else None,
            engram=self._engram(plan, hashing) if hashing is not None else None,
        )

    def draft(self, plan: LayerPlan) -> DraftLayer:
        """Build a layer of the drafter."""
        return DraftLayer(layer=self._layer(plan), projections=self._projections(plan))

    def _layer(self, plan: LayerPlan) -> Layer:
        prefix, weights = plan.prefix, self._weights
        attention, feed_forward = (
            Sublayer(
                mixes=weights.mixes(f"{prefix}hc_{sublayer}_"),
                norm_D=weights.vector(f"{prefix}{sublayer}_norm.weight"),
            )
            for sublayer in ("attn", "ffn")
        )
        return Layer(
            name=prefix.removesuffix("."),
            device=self._parts.device,
            rows=self._rows,
            attention=attention,
            feed_forward=feed_forward,
            mixture=self._mixture(plan),
        )

    def _mixture(self, plan: LayerPlan) -> Mixture:
        prefix, weights, wide = f"{plan.prefix}ffn.", self._weights, self._parts.numerics.accumulate
        gate_up, down = weights.experts(f"{prefix}experts")
        shared = f"{prefix}shared_experts."
        return Mixture(
            device=self._parts.device,
            rows=self._rows,
            router=Router(
                gate=weights.plain(f"{prefix}gate.weight", out_dtype=wide),
                bias_E=weights.vector(f"{prefix}gate.bias"),
                image_bias_E=weights.vector(f"{prefix}gate.bias_vl"),
                experts_per_row=plan.experts_per_token,
                scaling=self._text.routed_scaling_factor,
            ),
            experts=Experts(
                self._parts.all_to_all,
                self._parts.grouped,
                gate_up,
                down,
                experts_per_row=plan.experts_per_token,
                numerics=self._parts.numerics,
                product_format=self._parts.product_format,
            ),
            shared=SharedExpert(
                gate_up=weights.quantised(
                    f"{shared}w1.weight", f"{shared}w3.weight", out_dtype=wide
                ),
                down=weights.quantised(f"{shared}w2.weight", out_dtype=wide),
            ),
            limit=self._text.swiglu_limit,
        )

    def _projections(self, plan: LayerPlan) -> AttentionProjections:
        prefix, weights = f"{plan.prefix}attn.", self._weights
        return AttentionProjections(
            rows=self._rows,
            heads=self._text.num_attention_heads,
            query_down=weights.quantised(f"{prefix}wq_a.weight"),
            query_norm_K=weights.vector(f"{prefix}q_norm.weight"),
            query_up=weights.quantised(f"{prefix}wq_b.weight"),
            key=weights.quantised(f"{prefix}wkv.weight"),
            key_norm_W=weights.vector(f"{prefix}kv_norm.weight"),
            group_out=weights.quantised(f"{prefix}wo_a.weight", groups=self._text.o_groups),
            out=weights.quantised(f"{prefix}wo_b.weight"),
            sink_N=weights.vector(f"{prefix}attn_sink"),
        )

    def _compressor(self, plan: LayerPlan) -> Compressor:
        prefix, weights = f"{plan.prefix}attn.", self._weights
        # Raw gates and values stay wide until they are blended; a lone value is an activation.
        wide = self._parts.numerics.accumulate if plan.has_compressor_gate else None
        gate = f"{prefix}compressor.wgate.weight"
        index = IndexKeys(
            project=weights.plain(f"{prefix}indexer.wk.weight"),
            norm_J=weights.vector(f"{prefix}indexer.k_norm.weight"),
        )
        return Compressor(
            layer=plan.index,
            ratio=plan.ratio,
            rows=self._rows,
            codec=self._parts.codec,
            value=weights.plain(f"{prefix}compressor.wkv.weight", out_dtype=wide),
            gate=weights.plain(gate, out_dtype=wide) if plan.has_compressor_gate else None,
            norm_W=weights.vector(f"{prefix}compressor.norm.weight"),
            index=index,
        )

    def _selector(self, plan: LayerPlan) -> Selector:
        prefix, weights = f"{plan.prefix}attn.indexer.", self._weights
        owner = max(layer for layer in self._text.index_key_layers if layer <= plan.index)
        return Selector(
            layer=plan.index,
            owner=owner,
            ratio=plan.ratio,
            builds_pool=plan.builds_pool,
            uses_pool=plan.uses_pool,
            rows=self._rows,
            indexer=self._parts.indexer,
            codec=self._parts.codec,
            spec=self._index_spec,
            plan=self._index_plan,
            index_format=self._parts.numerics.index_format,
            query=weights.quantised(f"{prefix}wq_b.weight"),
            head_weight=weights.plain(f"{prefix}weights_proj.weight"),
        )

    def _engram(self, plan: LayerPlan, hashing: EngramHash) -> Engram:
        prefix, weights = f"{plan.prefix}engram.", self._weights
        return Engram(
            rows=self._rows,
            table=weights.host_table(f"{prefix}embed.weight"),
            hashing=_placed(hashing, self._parts.device.torch_device),
            # Looked-up rows carry their own scales; rounding them again could only lose.
            project=weights.plain(f"{prefix}wkv.weight"),
            query_weight_SD=weights.vector(f"{prefix}q_weight"),
            key_weight_SD=weights.vector(f"{prefix}k_weight"),
        )


def _placed(hashing: EngramHash, device: torch.device) -> EngramHash:
    return EngramHash(
        multiplier_N=hashing.multiplier_N.to(device),
        prime_C=hashing.prime_C.to(device),
        offset_C=hashing.offset_C.to(device),
        order_C=hashing.order_C.to(device),
        on_host=hashing,
    )
