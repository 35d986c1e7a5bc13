"""How does a token win? Each gets its log-probability plus Gumbel noise; the largest sum is drawn.

A row's noise is a function of its seed and position, and rows are computed one by one, so no row
can depend on another. Shapes: R rows, V vocabulary, A alternatives.
"""

from hashlib import blake2b

import torch  # noqa: TID253 - only the factory string leads here
from deepinfer_core.interfaces.component import Plan, Properties
from deepinfer_core.interfaces.sampler import Sampler, SamplerOutputs, SamplerRows, SamplerSpec
from deepinfer_core.plugin import BuildContext
from deepinfer_core.reference.logits_rules import adjusted


def build(options: None, context: BuildContext) -> "GumbelSampler":
    """Build the component; it has no options."""
    return GumbelSampler()


class GumbelSampler(Sampler):
    """Draws by the Gumbel-max rule, in fp64."""

    @property
    def properties(self) -> Properties:
        """What the conformance suite will hold this component to."""
        return Properties(batch_invariant="always", deterministic="always", graph_safe="never")

    def plan(self, spec: SamplerSpec, max_rows: int) -> Plan:
        """Nothing needs preparing."""
        return Plan(max_rows=max_rows)

    def run(
        self, plan: Plan, logits_RV: torch.Tensor, rows: SamplerRows, out: SamplerOutputs
    ) -> None:
        """Sample every row."""
        adjusted_RV = adjusted(logits_RV.double(), rows)
        for row, logits_V in enumerate(logits_RV.double()):
            kept_V = adjusted_RV[row]
            bad = logits_V.isnan().any() | (logits_V == torch.inf).any() | kept_V.isneginf().all()
            out.invalid_R[row] = bad
            if bad:
                continue
            kept_V = _survivors(kept_V, rows, row).log_softmax(0)
            token = int(rows.forced_R[row])
            if token < 0:
                token = int((kept_V + _noise(rows, row, len(kept_V))).argmax())
            raw_V = logits_V.log_softmax(0)
            out.token_R[row] = token
            out.logprob_R[row] = raw_V[token]
            out.processed_logprob_R[row] = kept_V[token]
            best_A = raw_V.argsort(descending=True, stable=True)[: out.top_token_RA.shape[1]]
            out.top_token_RA[row] = best_A
            out.top_logprob_RA[row] = raw_V[best_A]


def _survivors(logits_V: torch.Tensor, rows: SamplerRows, row: int) -> torch.Tensor:
    """Scaled logits, -inf where top-k, top-p or min-p drop one; temperature 0 keeps the best."""
    temperature, top_k = float(rows.temperature_R[row]), int(rows.top_k_R[row])
    if temperature == 0:
        return torch.full_like(logits_V, -torch.inf).index_fill(0, logits_V.argmax(), 0.0)
    scaled_V = logits_V / temperature
    order_V = scaled_V.argsort(descending=True, stable=True)
    p_V = scaled_V.softmax(0)[order_V]
    keeps_V = (p_V.cumsum(0) - p_V <= rows.top_p_R[row]) | (rows.top_p_R[row] >= 1)
    keeps_V &= (torch.arange(len(p_V)) < top_k) | (top_k < 0)
    keeps_V &= p_V >= rows.min_p_R[row] * p_V[0]
    return scaled_V.index_fill(0, order_V[~keeps_V], -torch.inf)


def _noise(rows: SamplerRows, row: int, vocabulary: int) -> torch.Tensor:
    """Standard Gumbel noise, the same for the same seed and position."""
    pair = torch.stack((rows.seed_R[row], rows.position_R[row])).numpy().tobytes()
    seed = int.from_bytes(blake2b(pair, digest_size=7).digest())
    uniform_V = torch.rand(
        vocabulary, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    return -(-uniform_V.log()).log()
