"""What does a text leave behind that is fed without an engine, row after row into fresh caches?

A row sees only what is before it, so one feeding of a whole text gives what each of its beginnings
gives: the logits that the first token behind it is drawn from, and the contents of the caches. What
an engine computes of any beginning, from whatever it found cached, is compared with that.

Shapes: T tokens, V vocabulary, R rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from deepinfer_core.interfaces.sampler import SamplerOutputs, SamplerRows, SamplerSpec
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.evaluate import fresh_caches, score_logits, text_step
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.reference import sampler as reference_sampler
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.cache_rows import Kept, block_rows, raw_rows, state_rows

__all__ = ["ColdText", "cold_text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdText:
    """A text with everything that feeding it gives.

    Attributes:
        tokens: the text.
        model: that it was fed to.
        logits_TV: of every row, on the host.
        tables: rows of the caches by region, at the positions that they belong to; those of
            compressed regions in units of the region.
    """

    tokens: tuple[int, ...]
    model: TextModel
    logits_TV: torch.Tensor
    tables: dict[str, torch.Tensor]

    def draw(self, length: int, *, temperature: float, seed: int = 0) -> int:
        """The token that is drawn behind so many tokens."""
        row_RV = self.logits_TV[length - 1 : length]
        return int(_drawn(row_RV, temperature, seed, length).token_R[0])

    def check_kept(self, kept: dict[str, Kept]) -> None:
        """Compare rows that a sequence left behind which fed a beginning of the text.

        Raises:
            AssertionError: one differs.
        """
        assert kept.keys() == self.tables.keys()
        for name, (number_R, rows_RD) in kept.items():
            assert_same_bits(rows_RD, self.tables[name][number_R])


def cold_text(model: TextModel, tokens: Sequence[int]) -> ColdText:
    """Feed a text: at once for its logits, in the shortest chunks for the rows of its caches."""
    caches, codec, size = (
        fresh_caches(model, len(tokens)),
        model.parts.codec,
        model.config.verified_rows,
    )
    pieces: dict[str, list[torch.Tensor]] = {}
    for start in range(0, len(tokens), size):
        stop = min(start + size, len(tokens))
        model.forward(text_step(tokens, start, stop, caches), caches)
        fed_R = torch.arange(start, stop)
        rows = state_rows(caches, codec, 1, fed_R) | raw_rows(caches, codec, 1, fed_R)
        for name, rows_RD in rows.items():
            pieces.setdefault(name, []).append(rows_RD)
    blocks = range(1, caches.blocks_PB.shape[0])
    tables = {name: torch.cat(rows) for name, rows in pieces.items()}
    tables |= block_rows(caches, codec, blocks, len(tokens))
    logits_TV = score_logits(model, tokens).cpu()
    return ColdText(tokens=tuple(tokens), model=model, logits_TV=logits_TV, tables=tables)


def _drawn(row_RV: torch.Tensor, temperature: float, seed: int, position: int) -> SamplerOutputs:
    sampler = reference_sampler.build(None, BuildContext(device="cpu", needs=ModelNeeds()))
    plan = sampler.plan(SamplerSpec(vocabulary=row_RV.shape[1]), 1)
    rows = SamplerRows(
        temperature_R=torch.tensor([float(temperature)]),
        top_p_R=torch.ones(1),
        top_k_R=torch.tensor([-1]),
        min_p_R=torch.zeros(1),
        seed_R=torch.tensor([seed - (1 << 64) * (seed >> 63)]),  # the same 64 bits, signed
        position_R=torch.tensor([position]),
        forced_R=torch.tensor([-1]),
    )
    out = SamplerOutputs(
        token_R=torch.empty(1, dtype=torch.int64),
        logprob_R=torch.empty(1),
        processed_logprob_R=torch.empty(1),
        top_token_RA=torch.empty(1, 0, dtype=torch.int64),
        top_logprob_RA=torch.empty(1, 0),
        invalid_R=torch.empty(1, dtype=torch.bool),
    )
    sampler.run(plan, row_RV, rows, out)
    return out
