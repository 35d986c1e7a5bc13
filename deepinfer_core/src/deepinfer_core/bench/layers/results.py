"""In which figures does a survey of layers show, as data and as words?

Times are milliseconds, with the layer bound beside them. Names hold the load and how many layers
were built; figures of all layers are called ``extrapolated``, since nothing of that size ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deepinfer_core.bench.figures import Figure, Reference
from deepinfer_core.bench.layers.bound import Rates
from deepinfer_core.bench.layers.idle import Trace
from deepinfer_core.bench.layers.loads import Prompt
from deepinfer_core.bench.layers.survey import Measured
from deepinfer_core.bench.stamp import Stamp

__all__ = ["LayerResult"]

_MS = 1e3
_TOP = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerResult:
    """All of one run.

    Attributes:
        stamp: hardware, date, commit.
        components: names of what computed.
        layers: numbers of the layers that were built.
        whole: layers of the model.
        experts: routed experts of a layer.
        rates: of the device.
        built_s: seconds that weights took.
        measured: of every load.
        served: requests of the engine whose steps were looked at.
        trace: what the device did in them; None where it has no record.
    """

    stamp: Stamp
    components: str
    layers: tuple[int, ...]
    whole: int
    experts: int
    rates: Rates
    built_s: float
    measured: Sequence[Measured]
    served: int
    trace: Trace | None

    def figures(self) -> list[Figure]:
        """Every time against its bound, measured and extrapolated; then the share without gaps."""
        figures = []
        for item in self.measured:
            verb = "prompt" if isinstance(item.load, Prompt) else "decode"
            how = "recorded" if item.is_recorded else "launched"
            words = f"layer bound with {item.experts:.0f} of {self.experts} experts a layer"
            for kind, count, seconds, bound_s in (
                ("", len(self.layers), item.seconds, item.bound_s),
                (".extrapolated", self.whole, item.extrapolated_s, item.whole_bound_s),
            ):
                figures.append(
                    Figure(
                        name=f"layers.{verb}{kind}[{item.load},layers={count},steps={how},"
                        f"components={self.components}]",
                        value=seconds * _MS,
                        unit="ms",
                        reference=Reference(kind="bound", name=words, value=bound_s * _MS),
                    )
                )
        return figures + self._gap_figures()

    def to_json(self) -> list[dict[str, Any]]:
        """What ``--json`` prints: the figures, and the profile as one more object."""
        found = [figure.to_json(self.stamp) for figure in self.figures()]
        return found if self.trace is None else [*found, self._profile(self.trace)]

    def _gap_figures(self) -> list[Figure]:
        """The span of decode steps against the same without the gaps between them."""
        trace = self.trace
        if trace is None or not trace.steps:
            return []
        figures = []
        for name, share in (("between_steps", trace.between_steps), ("idle", trace.idle)):
            span_ms = trace.step_us / _MS
            figures.append(
                Figure(
                    name=f"layers.engine.{name}[{self._served}]",
                    value=span_ms,
                    unit="ms",
                    reference=Reference(
                        kind="bound",
                        name=f"the same without gaps, which are {share:.2%} of the time",
                        value=span_ms * (1 - share),
                    ),
                )
            )
        return figures

    @property
    def _served(self) -> str:
        return f"requests={self.served},layers={len(self.layers)},components={self.components}"

    def _profile(self, trace: Trace) -> dict[str, Any]:
        rows = [
            {
                "activity": one.name,
                "share": round(one.share, 4),
                "step_us": round(one.step_us, 2),
                "calls": one.calls,
            }
            for one in trace.top(_TOP)
        ]
        return {
            "name": f"layers.profile[{self._served}]",
            "steps": trace.steps,
            "step_us": round(trace.step_us, 2),
            "between_steps_us": round(trace.step_us * trace.between_steps, 2),
            "idle_us": round(trace.step_us * trace.idle, 2),
            "top": rows,
            "rates": {
                "copy_bytes_per_s": self.rates.copy_bytes_per_s,
                "flops_per_s": self.rates.flops_per_s,
                "host_bytes_per_s": self.rates.host_bytes_per_s,
            },
            "hardware": self.stamp.hardware,
            "date": self.stamp.date,
            "commit": self.stamp.commit,
        }
