"""Which trials show that the row-wise operators treat every row alike?

Shapes: N rows of a batch, P rows of the pool, S streams, D hidden width, H heads, W head width, E
experts, I expert width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from deepinfer_core.engine.proof.samples import Samples
from deepinfer_core.engine.proof.trial import POOL_ROWS, Trial
from deepinfer_core.model.activations import Mixes
from deepinfer_core.model.engram import Engram
from deepinfer_core.model.rope import Rotation, rotation

__all__ = ["transform_trials"]

_Run = Callable[[torch.Tensor], list[torch.Tensor]]


def transform_trials(samples: Samples) -> Iterator[Trial]:
    """Every operator of the component at every width that the model uses it at."""
    for make in (_norms, _rotations, _roundings, _mixes, _routing, _activation, _engram):
        for operator, run in make(samples):
            yield Trial(
                kind="transform",
                slot="transform",
                operator=operator,
                run=run,
                plan=samples.model.rows.plan,
            )


def _norms(samples: Samples) -> Iterator[tuple[str, _Run]]:
    model, rows = samples.model, samples.model.rows
    first = model.layers[0].projections
    weights = [model.norm_D, first.query_norm_K, first.key_norm_W]
    weights += [
        layer.compressor.index.norm_J
        for layer in model.layers
        if layer.compressor is not None and layer.compressor.index is not None
    ]
    for width, weight in {weight.shape[0]: weight for weight in weights}.items():
        x_PD = samples.rows(width, dtype=rows.compute)

        def run(
            order: torch.Tensor, x_PD: torch.Tensor = x_PD, weight: torch.Tensor = weight
        ) -> list[torch.Tensor]:
            return [rows.norm(x_PD[order], weight)]

        yield f"rms_norm of {width} channels", run
    latent_PK = samples.rows(first.query_norm_K.shape[0], dtype=rows.compute)

    def for_product(order: torch.Tensor) -> list[torch.Tensor]:
        return [rows.norm_for_product(latent_PK[order], first.query_norm_K)]

    yield f"rms_norm for products of {latent_PK.shape[1]} channels", for_product


def _rotations(samples: Samples) -> Iterator[tuple[str, _Run]]:
    model, rows = samples.model, samples.model.rows
    positions = samples.integers(0, model.config.text_config.max_position_embeddings, POOL_ROWS)
    every = rotation(positions, model.frequencies.plain_P)

    def by(order: torch.Tensor) -> Rotation:
        return Rotation(cosine_TP=every.cosine_TP[order], sine_TP=every.sine_TP[order])

    projections, width = model.layers[0].projections, model.config.text_config.head_dim
    for heads in {1, projections.heads}:
        x_PHW = samples.rows(heads, width, dtype=rows.compute)

        def run(order: torch.Tensor, x_PHW: torch.Tensor = x_PHW) -> list[torch.Tensor]:
            back = rows.rotate(x_PHW[order], by(order), inverse=True)
            return [rows.rotate(x_PHW[order], by(order)), back]

        yield f"rope of {heads} x {width} channels", run
    value_PHW = samples.rows(projections.heads, width, dtype=rows.compute)

    def for_product(order: torch.Tensor) -> list[torch.Tensor]:
        return [rows.rotate_for_product(value_PHW[order], by(order), inverse=True)]

    yield f"rope for products of {projections.heads} x {width} channels", for_product
    key_PW = samples.rows(width, dtype=rows.compute)

    def normed(order: torch.Tensor) -> list[torch.Tensor]:
        return list(rows.norm_and_rotate(key_PW[order], projections.key_norm_W, by(order)))

    yield f"norm_rope of {width} channels", normed


def _roundings(samples: Samples) -> Iterator[tuple[str, _Run]]:
    model, rows, numerics = samples.model, samples.model.rows, samples.model.parts.numerics
    text = model.config.text_config
    shapes = {
        (text.head_dim,): numerics.window_format,
        (text.index_n_heads, text.index_head_dim): numerics.index_format,
    }
    for shape, number_format in shapes.items():
        x_P = samples.rows(*shape, dtype=rows.compute)

        def run(
            order: torch.Tensor, x_P: torch.Tensor = x_P, name: str = number_format
        ) -> list[torch.Tensor]:
            return [rows.round_trip(x_P[order], name)]

        yield f"fake_quantise of {' x '.join(map(str, shape))} channels to {number_format}", run


def _mixes(samples: Samples) -> Iterator[tuple[str, _Run]]:
    model, rows = samples.model, samples.model.rows
    width, streams = model.config.text_config.hidden_size, rows.streams
    trunk_PSD = samples.rows(streams, width, dtype=rows.compute)
    y_PD = samples.rows(width, dtype=rows.compute)
    routed_PD, shared_PD = (samples.rows(width, dtype=rows.accumulate) for _ in range(2))
    pre_PS, post_PS = (samples.rows(streams, dtype=rows.accumulate) for _ in range(2))
    comb_PSS = samples.rows(streams, streams, dtype=rows.accumulate)
    weights = model.layers[0].layer.attention.mixes
    norm_D = model.layers[0].layer.attention.norm_D

    def mixes(order: torch.Tensor) -> list[torch.Tensor]:
        found = rows.mixes(trunk_PSD[order], weights)
        return [found.pre_TS, found.post_TS, found.comb_TSS]

    def collapse(order: torch.Tensor) -> list[torch.Tensor]:
        entered = rows.enter(trunk_PSD[order], pre_PS[order], norm_D)
        collapsed_ND = rows.collapse(trunk_PSD[order], pre_PS[order])
        return [collapsed_ND, entered.plain_TD, entered.rounded_TD]

    def expand(order: torch.Tensor) -> list[torch.Tensor]:
        trunk_NSD = trunk_PSD[order]
        given = Mixes(pre_TS=pre_PS[order], post_TS=post_PS[order], comb_TSS=comb_PSS[order])
        entered = rows.expand_enter(trunk_NSD, y_PD[order], given, norm_D)
        summed_NSD = trunk_PSD[order]
        rows.add_expand(summed_NSD, routed_PD[order], shared_PD[order], given)
        return [trunk_NSD, entered.plain_TD, entered.rounded_TD, summed_NSD]

    shape = f"of {streams} x {width} channels"
    yield f"mhc_mixes {shape}", mixes
    yield f"mhc_collapse {shape}", collapse
    yield f"mhc_expand {shape}", expand


def _routing(samples: Samples) -> Iterator[tuple[str, _Run]]:
    rows = samples.model.rows
    router = samples.model.layers[0].layer.mixture.router
    experts = router.bias_E.shape[0]
    logits_PE = samples.rows(experts, dtype=rows.accumulate)
    image_P = (torch.arange(POOL_ROWS) % 3 == 0).to(samples.device)

    def run(order: torch.Tensor) -> list[torch.Tensor]:
        found = rows.route(
            logits_PE[order],
            router.bias_E,
            router.image_bias_E,
            image_P[order],
            experts_per_row=router.experts_per_row,
            scaling=router.scaling,
        )
        return list(found)

    yield f"gate_topk among {experts} experts", run


def _activation(samples: Samples) -> Iterator[tuple[str, _Run]]:
    rows, mixture = samples.model.rows, samples.model.layers[0].layer.mixture
    width = mixture.experts.width
    x_P2I = samples.rows(2 * width, dtype=rows.accumulate)
    route_P = samples.rows(dtype=rows.accumulate)

    def run(order: torch.Tensor) -> list[torch.Tensor]:
        x_N2I = x_P2I[order]
        routed_NI = rows.swiglu(x_N2I, route_P[order], mixture.limit)
        return [routed_NI, rows.swiglu(x_N2I, None, mixture.limit)]

    yield f"swiglu of 2 x {width} channels", run


def _engram(samples: Samples) -> Iterator[tuple[str, _Run]]:
    found = (layer.engram for layer in samples.model.layers if layer.engram is not None)
    engram = next(found, None)
    if engram is None:
        return
    ids_PN = samples.integers(
        0,
        samples.model.config.text_config.engram_compressed_vocab_size,
        POOL_ROWS,
        engram.hashing.multiplier_N.shape[0],
    )

    def look_up(order: torch.Tensor) -> list[torch.Tensor]:
        return [samples.model.rows.engram_rows(ids_PN[order], engram.hashing)]

    yield f"engram_rows of {engram.hashing.prime_C.shape[0]} columns", look_up
    yield _engram_gate(samples, engram)


def _engram_gate(samples: Samples, engram: Engram) -> tuple[str, _Run]:
    rows, (streams, width) = samples.model.rows, engram.query_weight_SD.shape
    trunk_PSD = samples.rows(streams, width, dtype=rows.compute)
    key_value_PSD = samples.rows(streams + 1, width, dtype=rows.compute)
    image_P = (torch.arange(POOL_ROWS) % 3 == 0).to(samples.device)

    def run(order: torch.Tensor) -> list[torch.Tensor]:
        trunk_NSD, projected_NSD = trunk_PSD[order], key_value_PSD[order]
        rows.engram_gate(
            trunk_NSD,
            projected_NSD[:, :streams],
            projected_NSD[:, streams],
            engram.query_weight_SD,
            engram.key_weight_SD,
            image_P[order],
        )
        return [trunk_NSD]

    return f"engram_gate of {streams} x {width} channels", run
