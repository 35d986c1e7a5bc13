"""How is a promise proven before an engine takes requests?

A declaration is only a word: a component that says ``batch_invariant`` may break it on this
machine, at these widths, with these versions of libraries. So with ``strict`` every component runs
its operators at the model's own widths, formats and weights before the first request, and one bit
that differs stops the start. What passes is shown for these rows and sizes, on this machine; no
finite number of runs shows more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from deepinfer_core.engine.proof.attending import attention_trials, codec_trials, indexer_trials
from deepinfer_core.engine.proof.drawing import sampler_trials
from deepinfer_core.engine.proof.products import dense_trials, exchange_trials, grouped_trials
from deepinfer_core.engine.proof.row_operators import transform_trials
from deepinfer_core.engine.proof.samples import Samples
from deepinfer_core.engine.proof.trial import Trial, batch_breach, repeat_breach
from deepinfer_core.engine.proof.whole_model import chunk_breach, rerun_breach
from deepinfer_core.errors import DeepInferError, NoUsableComponent, PluginFailed
from deepinfer_core.interfaces.kinds import PROVEN, slot_title
from deepinfer_core.interfaces.sampler import Sampler
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.plugin import Resolved, load
from deepinfer_core.plugin.resolved import Pick

__all__ = ["prove"]

_PROVABLE: dict[str, tuple[Callable[[Trial, int], str], Callable[[Samples], str]]] = {
    "batch_invariant": (batch_breach, chunk_breach),
    "deterministic": (repeat_breach, rerun_breach),
}
"""How each property is looked at in a trial and in the whole model; others are only declared."""


@torch.inference_mode()
def prove(model: TextModel, sampler: Sampler, resolved: Resolved, *, max_rows: int) -> None:
    """Make every picked component prove what ``resolved.context.strict`` asks for.

    Nothing is run if nothing that can be proven is asked for. The engine's own caches are not
    touched.

    Args:
        model: as it will serve.
        sampler: the same.
        resolved: names the components.
        max_rows: most rows of a step.

    Raises:
        NoUsableComponent: a component, once built, does not promise the property, or breaks it.
        PluginFailed: a component raised something that is none of this project's errors.
        DeviceError: there is no memory for the scratch caches.
    """
    _check_words(resolved)
    asked = [name for name in PROVEN if name in resolved.context.strict]
    if not asked:
        return
    samples = Samples.of(model)
    for trial in _trials(samples, sampler):
        for name in asked:
            if breach := _tried(trial, _PROVABLE[name][0], max_rows, resolved):
                pick = resolved.pick(trial.kind, trial.slot)
                raise _broken(pick, name, f"in {trial.operator} {breach}")
    for name in asked:
        if breach := _PROVABLE[name][1](samples):
            names = sorted({pick.spec.name for pick in resolved.picks})
            raise NoUsableComponent(
                f"strict asks for {name}, found that {breach}; components: {', '.join(names)}",
                hint=f"no single operator showed it; remove {name} from strict, or report this",
            )


def _trials(samples: Samples, sampler: Sampler) -> Iterator[Trial]:
    for make in (
        transform_trials,
        dense_trials,
        grouped_trials,
        exchange_trials,
        codec_trials,
        indexer_trials,
        attention_trials,
    ):
        yield from make(samples)
    yield from sampler_trials(samples, sampler)


def _check_words(resolved: Resolved) -> None:
    """What was built must promise what its description did."""
    for pick in resolved.picks:
        component = load(resolved, pick.kind, pick.slot)
        for name in resolved.context.strict:
            if getattr(component.properties, name) == "never":
                raise _broken(pick, name, "once built it promises it never")


def _tried(
    trial: Trial, look: Callable[[Trial, int], str], max_rows: int, resolved: Resolved
) -> str:
    try:
        return look(trial, max_rows)
    except DeepInferError:
        raise
    except Exception as error:
        pick = resolved.pick(trial.kind, trial.slot)
        raise PluginFailed(
            f"{slot_title(pick.kind, pick.slot)} {pick.spec.name} of {pick.distribution} broke in "
            f"{trial.operator}: {type(error).__name__}: {error}",
            hint=f"report this to the authors of {pick.distribution}",
        ) from error


def _broken(pick: Pick, name: str, found: str) -> NoUsableComponent:
    title = slot_title(pick.kind, pick.slot)
    return NoUsableComponent(
        f"strict asks for {name}, found that {title} {pick.spec.name} of {pick.distribution} "
        f"breaks it: {found}",
        hint=f"choose another component for {title}, or remove {name} from strict; "
        "deepinfer_core.testing.contracts shows its authors the same",
    )
