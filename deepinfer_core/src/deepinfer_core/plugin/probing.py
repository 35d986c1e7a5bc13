"""Can each offered component run here, for this model?

The core's own probes run in this process. All others run in child processes, one for each
distribution at a time, so that an abort or a hang becomes the state of one component.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pkgutil import resolve_name
from typing import Any, Literal

from deepinfer_core.interfaces.kinds import CONTRACTS
from deepinfer_core.plugin.children import Outcome, run_tasks
from deepinfer_core.plugin.context import DeviceFacts, ProbeContext, Verdict
from deepinfer_core.plugin.loading import Offer, misfit, rivals
from deepinfer_core.plugin.resolved import describe
from deepinfer_core.plugin.specs import ComponentSpec

__all__ = ["Candidate", "Judgement", "call_probe", "judge"]

Judgement = Literal["usable", "unusable", "contract-mismatch", "probe-failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An offered component and whether it can run.

    Attributes:
        offer: the component and its plugin.
        judgement: whether it can be picked, or what stands against it.
        score: of a usable one.
        reason: why.
        fix: what the user can do about it.
        mendable: the machine lacks only what its user can supply.
        details: traceback or last output of a failed probe.
    """

    offer: Offer
    judgement: Judgement
    score: int = 0
    reason: str = ""
    fix: str = ""
    mendable: bool = False
    details: str = ""

    @property
    def spec(self) -> ComponentSpec:
        """The component's description."""
        return self.offer.spec

    @property
    def usable(self) -> bool:
        """Whether it can be picked."""
        return self.judgement == "usable"


def judge(
    offers: Sequence[Offer],
    context: ProbeContext,
    strict: Sequence[str],
    timeout_s: float,
) -> list[Candidate]:
    """Judge components: first by their descriptions alone, then by their probes.

    Args:
        offers: all offered components; two under one name make both unusable.
        context: what probes are told.
        strict: properties that a component must promise.
        timeout_s: for each probe.

    Returns:
        One candidate an offer, in order.
    """
    found: dict[str, Candidate] = {}
    to_probe: list[Offer] = []
    for offer in offers:
        refused = _refuse(offer, offers, context, strict)
        if refused is not None:
            found[offer.key] = refused
        elif not offer.spec.probe:
            found[offer.key] = Candidate(offer=offer, judgement="usable")
        elif offer.plugin.is_core:
            found[offer.key] = _probe_here(offer, context)
        else:
            to_probe.append(offer)
    for candidate in _probe_apart(to_probe, context, timeout_s):
        found[candidate.offer.key] = candidate
    return [found[offer.key] for offer in offers]


def call_probe(probe: str, context: ProbeContext) -> Verdict:
    """Resolve and call one probe.

    Raises:
        TypeError: it answered with something else than a verdict.
        Exception, SystemExit: whatever the probe raised.
    """
    verdict = resolve_name(probe)(context)
    if not isinstance(verdict, Verdict):
        raise TypeError(f"{probe} gave {type(verdict).__name__}, expected Verdict")
    return verdict


def _refuse(
    offer: Offer, offers: Sequence[Offer], context: ProbeContext, strict: Sequence[str]
) -> Candidate | None:
    """What the description alone rules out."""
    spec = offer.spec
    mismatch = _contract_problem(spec)
    if mismatch:
        fix = f"install a release of {offer.plugin.distribution} made for this core"
        return Candidate(offer=offer, judgement="contract-mismatch", reason=mismatch, fix=fix)
    for other in rivals(offer, offers):
        names = sorted((offer.plugin.distribution, other.plugin.distribution))
        reason = f"{names[0]} and {names[1]} both offer {spec.kind} {spec.name}"
        fix = "uninstall one of them, or name it in plugins.block"
        return Candidate(offer=offer, judgement="unusable", reason=reason, fix=fix)
    for name in strict:
        if spec.properties.get(name, "never") == "never":
            fix = f"remove {name} from strict, or choose another component"
            return Candidate(
                offer=offer, judgement="unusable", reason=f"does not promise {name}", fix=fix
            )
    return _refuse_device(offer, context.device)


def _refuse_device(offer: Offer, facts: DeviceFacts) -> Candidate | None:
    """What the configured device rules out."""
    spec = offer.spec
    if facts.device not in spec.devices and (spec.devices or spec.kind == "device"):
        devices = ", ".join(spec.devices)
        answers = "runs on" if spec.kind != "device" else "answers to"
        reason = f"{answers} {devices or 'no device'}; the device is {facts.device}"
        fix = f'set device = "{spec.devices[0]}"' if spec.devices else ""
        return Candidate(offer=offer, judgement="unusable", reason=reason, fix=fix)
    if spec.kind == "device" and facts.problem:
        return Candidate(offer=offer, judgement="unusable", reason=facts.problem, fix=facts.fix)
    return None


def _contract_problem(spec: ComponentSpec) -> str:
    problem = misfit(spec)
    if problem:
        return problem
    current = CONTRACTS[spec.kind]
    if spec.contract in (current, current - 1):
        return ""
    accepted = f"{current - 1} and {current}" if current > 1 else f"{current}"
    return f"speaks revision {spec.contract} of {spec.kind}, this core accepts {accepted}"


def _probe_here(offer: Offer, context: ProbeContext) -> Candidate:
    try:
        verdict = call_probe(offer.spec.probe, context)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a broken probe is a state
        return Candidate(
            offer=offer,
            judgement="probe-failed",
            reason=describe(error),
            details="".join(traceback.format_exception(error)),
        )
    return _judged(offer, asdict(verdict))


def _probe_apart(
    offers: Sequence[Offer], context: ProbeContext, timeout_s: float
) -> Iterator[Candidate]:
    shared = {
        "device": context.device.to_json(),
        "needs": asdict(context.needs),
        "versions": dict(context.versions),
        "cache_dir": context.cache_dir,
    }
    by_distribution = sorted(offers, key=lambda offer: offer.plugin.distribution)
    for _, group in groupby(by_distribution, key=lambda offer: offer.plugin.distribution):
        theirs = list(group)
        tasks: list[dict[str, Any]] = [{**shared, "probe": offer.spec.probe} for offer in theirs]
        outcomes = run_tasks("deepinfer_core.plugin.probe_child", tasks, timeout_s)
        for offer, outcome in zip(theirs, outcomes, strict=True):
            yield _from_child(offer, outcome)


def _from_child(offer: Offer, outcome: Outcome) -> Candidate:
    answer = outcome.answer
    if answer is None:
        return Candidate(
            offer=offer,
            judgement="probe-failed",
            reason=f"{offer.spec.probe} {outcome.problem}",
            details=outcome.output,
        )
    if "problem" in answer:
        return Candidate(
            offer=offer,
            judgement="probe-failed",
            reason=answer["problem"],
            details=answer["details"],
        )
    return _judged(offer, answer)


def _judged(offer: Offer, verdict: dict[str, Any]) -> Candidate:
    return Candidate(
        offer=offer,
        judgement="usable" if verdict["usable"] else "unusable",
        score=verdict["score"],
        reason=verdict["reason"],
        fix=verdict["fix"],
        mendable=verdict["mendable"],
    )
