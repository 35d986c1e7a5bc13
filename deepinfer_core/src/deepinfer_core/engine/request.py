"""What does the engine know of a request that passed every check?"""

from __future__ import annotations

from dataclasses import dataclass, field

from deepinfer_core.engine.request_options import RequestOptions
from deepinfer_core.engine.rows import RowSettings
from deepinfer_core.engine.sampling_params import SamplingParams

__all__ = ["Request"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request that passed every check.

    Attributes:
        index: place among the prompts of the call.
        prompt_ids: at least one token.
        params: how to draw.
        seed: unsigned 64 bits, of this sample; drawn for it where ``params`` has none.
        max_tokens: most tokens to draw, the engine's longest sequence taken into account.
        arrival_s: monotonic clock.
        sample: place among the answers to the prompt.
        bad_sequences: token ids that are not drawn one after the other.
        options: how it is treated beside others.
    """

    index: int
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    seed: int
    max_tokens: int
    arrival_s: float
    sample: int = 0
    bad_sequences: tuple[tuple[int, ...], ...] = ()
    options: RequestOptions = field(default_factory=RequestOptions)

    def settings(self) -> RowSettings:
        """What holds for each of its drawn rows."""
        params = self.params
        return RowSettings(
            seed=self.seed,
            temperature=float(params.temperature),
            top_p=float(params.top_p),
            top_k=int(params.top_k),
            min_p=float(params.min_p),
            allowed=params.allowed_ids,
            bias=params.biases,
            repetition_penalty=float(params.repetition_penalty),
            frequency_penalty=float(params.frequency_penalty),
            presence_penalty=float(params.presence_penalty),
            alternatives=params.alternatives or 0,
        )
