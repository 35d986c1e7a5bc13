"""What does a running service tell about its store, and why is a figure zero?

It is read from ``/metrics``, as a scraper does. Every zero has a reason: the first that explains
it, from the request to the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from deepinfer_core.telemetry.metric import PREFIX
from deepinfer_core.telemetry.metric_list import PROMPT_SOURCES, STATE_PLACES
from deepinfer_core.telemetry.store_metrics import STORE_FETCHES, STORE_REMOVALS, STORE_UNASKED

__all__ = ["Figure", "Figures", "figures_of_text", "told"]

_WHOLE = "store"
"""The part that is the store itself; see ``engine.stored.parts``."""

_ENDS = {
    "miss": "the store had none of what it was asked for, {n:,} times",
    "corrupt": "{n:,} prefixes began with a damaged block: see deepinfer cache verify",
    "version": "{n:,} prefixes began with a block of another version: see deepinfer cache verify",
    "timeout": "{n:,} fetches were too slow: see engine.kv_store.match_timeout_s, fetch_timeout_s",
    "abandoned": "{n:,} fetches were abandoned: computing is quicker",
    "unavailable": "the store was unavailable to {n:,} fetches: its log says why",
    "lost": "{n:,} fetches ended with the fetcher, which died: its log says why",
    "full": "{n:,} fetches found no room in shared memory: see engine.kv_store.fetch_bytes",
    "no_room": "{n:,} fetches found no room in the engine's cache: see engine.kv_cache_bytes",
    "failed": "{n:,} fetches were not copied to the device",
    "left": "{n:,} requests ended before their fetch",
}
"""Why nothing came, by how fetches ended."""

_UNASKED = {
    "too_short": "no request had a full block to ask for",
    "in_memory": "what could be reused was in the engine's memory",
    "busy": "{n:,} requests found too many fetches, or too few blocks, to ask for anything",
}
"""Why nothing was asked for."""

_NOT_KEPT = {
    "unavailable": "the store could not take {n:,} blocks: its log says why (store.refused)",
    "full": "the store had no room for {n:,} blocks: see its capacity_bytes, quota_bytes, young_s",
    "orphan": "{n:,} blocks were not stored, because the ones before them are not there",
    "timeout": "{n:,} blocks waited for too long",
    "dropped": "{n:,} blocks were dropped: nobody had time for them",
    "lost": "{n:,} blocks ended with the fetcher, which died: its log says why",
    "failed": "{n:,} blocks were not copied from the device",
}
"""Why nothing was stored, by what became of blocks."""


_VAIN = {
    "miss": "it had none of {n:,} blocks that it was asked for",
    "corrupt": "{n:,} blocks that it was asked for were damaged: see deepinfer cache verify",
    "version": "{n:,} blocks that it was asked for were of another version",
    "timeout": "it was too slow for {n:,} blocks",
    "unavailable": "it could not give or take {n:,} blocks: it is full, or the log says why",
}
"""Why a part gave nothing, by what became of the blocks that it was asked for or given."""


class Figure(NamedTuple):
    """One figure.

    Attributes:
        name: for a person.
        value: as it stands.
        why: of a zero; empty of anything else.
    """

    name: str
    value: float
    why: str


class Figures:
    """Samples of one scrape.

    Args:
        samples: values by name without the prefix, and labels.
    """

    def __init__(self, samples: Mapping[str, list[tuple[Mapping[str, str], float]]]) -> None:
        self._samples = samples

    def sum(self, name: str, **labels: str) -> float:
        """All samples with these labels; 0 if there are none."""
        return sum(
            value for found, value in self._samples.get(name, ()) if labels.items() <= found.items()
        )

    def by(self, name: str, label: str) -> dict[str, float]:
        """Sums by the value of a label."""
        found: dict[str, float] = {}
        for labels, value in self._samples.get(name, ()):
            found[labels[label]] = found.get(labels[label], 0.0) + value
        return found

    @property
    def store(self) -> str:
        """Name of the component; empty: the service has no store."""
        slots = {
            labels["slot"]: labels["component"]
            for labels, _ in self._samples.get("component_info", ())
        }
        return slots.get("kv_store", "")


def figures_of_text(text: str) -> Figures:
    """Read the text form of metrics."""
    from prometheus_client.parser import text_string_to_metric_families

    samples: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix(PREFIX)
            samples.setdefault(name, []).append((sample.labels, sample.value))
    return Figures(samples)


def told(figures: Figures) -> Iterator[Figure]:
    """All figures about the store, each zero with its reason."""
    sources = figures.by("prompt_source_tokens_total", "source")
    whys = {
        "computed": lambda: _no_request(figures) or "all of every prompt was found",
        "host": lambda: _why_no_host(figures),
        "store": lambda: _why_nothing_came(figures),
        "peer": lambda: _why_no_peer(figures),
        "replayed": lambda: _why_no_replay(figures),
    }
    for source in PROMPT_SOURCES:
        value = sources.get(source, 0.0)
        yield Figure(f"input tokens: {source}", value, "" if value else whys[source]())
    for place in STATE_PLACES:
        value = figures.sum("prompt_states_total", where=place)
        yield Figure(f"states: {place}", value, "" if value else _why_no_state(figures, place))
    asked = figures.sum("kv_store_fetches_total")
    yield Figure("prefixes asked for", asked, "" if asked else _why_nothing_asked(figures))
    came = figures.sum("kv_store_fetched_blocks_total")
    yield Figure("blocks that came", came, "" if came else _why_nothing_came(figures))
    stored = figures.sum("kv_store_written_blocks_total", outcome="stored")
    yield Figure("blocks stored", stored, "" if stored else _why_nothing_stored(figures))
    kept = figures.sum("kv_store_kept_blocks")
    yield Figure("blocks kept", kept, "" if kept else _why_nothing_kept(figures))
    removed = figures.sum("kv_store_removed_blocks_total")
    yield Figure("blocks removed", removed, "" if removed else _why_nothing_removed(figures))
    yield from _parts(figures)


def _parts(figures: Figures) -> Iterator[Figure]:
    """Blocks that each store of the store gave."""
    asked = figures.by("kv_store_part_blocks_total", "part")
    usable = figures.by("kv_store_part_usable", "part")
    for part in (one for one in asked if one != _WHOLE):
        hits = figures.sum("kv_store_part_blocks_total", part=part, outcome="hit")
        vain = {
            outcome: figures.sum("kv_store_part_blocks_total", part=part, outcome=outcome)
            for outcome in _VAIN
        }
        reason = max(vain, key=lambda outcome: vain[outcome])
        why = "it was asked for nothing: others had it, or nobody asked"
        if not usable.get(part):
            why = "it has a problem, or is not open: the log says which (kv_store.problem)"
        elif vain[reason]:
            why = _VAIN[reason].format(n=int(vain[reason]))
        yield Figure(f"blocks from {part}", hits, "" if hits else why)


def _no_request(figures: Figures) -> str:
    return "" if figures.sum("prompt_tokens_total") else "no request has ended"


def _no_store(figures: Figures) -> str:
    """Why a store is asked for nothing now; empty: it is."""
    if not figures.store:
        return "the service has no store: see components.kv_store"
    if figures.sum("kv_store_usable"):
        return ""
    seconds = figures.sum("kv_store_unusable_seconds")
    return f"the store cannot be asked since {seconds:,.0f} s: its log says why (kv_store.unusable)"


def _why_no_host(figures: Figures) -> str:
    short = figures.sum("kv_store_unasked_total", reason="too_short")
    lookups = figures.sum("prefix_cache_lookups_total")
    if why := _no_request(figures):
        return why
    if not lookups:
        return "no prompt was looked up: see engine.prefix_cache"
    if short >= lookups:
        return "no request had a full block"
    if figures.sum("prefix_cache_hit_blocks_total"):
        return "what was in memory was fed again, or came from the store"
    if not figures.store:  # then nobody counts those that were too short
        return "no prompt began like one that is still in memory, or none had a full block"
    return "no prompt began like one that is still in memory"


def _why_nothing_asked(figures: Figures) -> str:
    if why := _no_store(figures) or _no_request(figures):
        return why
    unasked = {name: figures.sum("kv_store_unasked_total", reason=name) for name in STORE_UNASKED}
    reason = max(unasked, key=lambda name: unasked[name])
    if not unasked[reason]:
        return "no request could reuse anything: see engine.prefix_cache"
    return _UNASKED[reason].format(n=int(unasked[reason]))


def _why_nothing_came(figures: Figures) -> str:
    ends = {name: figures.sum("kv_store_fetches_total", outcome=name) for name in STORE_FETCHES}
    if not sum(ends.values()):
        return _why_nothing_asked(figures)
    if ends["done"]:
        return _no_request(figures) or "all that came was fed again, or was in memory by then"
    if not figures.sum("kv_store_kept_blocks") and ends["miss"]:
        return f"the store holds nothing: {_why_nothing_kept(figures)}"
    reason = max(ends, key=lambda name: ends[name])
    return _no_store(figures) or _ENDS[reason].format(n=int(ends[reason]))


def _why_no_peer(figures: Figures) -> str:
    if why := _no_store(figures) or _no_request(figures):
        return why
    if "core.peers" not in figures.by("kv_store_part_usable", "component"):
        return "no part of the store is core.peers"
    return "no block came from the memory of another machine"


def _why_no_replay(figures: Figures) -> str:
    if why := _no_request(figures):
        return why
    found = figures.sum("prompt_states_total")
    return "every prefix had a state at its end" if found else "no prefix was found"


def _why_no_state(figures: Figures, place: str) -> str:
    if why := _no_request(figures):
        return why
    if not figures.sum("prompt_states_total"):
        return "no prefix was found"
    if place == "missed":
        return "every prefix had a state at its end"
    if place == "peer":
        return _why_no_peer(figures)
    if not figures.store:
        return "no state of a prefix was in the engine's memory any more, and there is no store"
    return "no state of a prefix was in memory here: see engine.kv_store.state_retention_s"


def _why_nothing_stored(figures: Figures) -> str:
    written = figures.by("kv_store_written_blocks_total", "outcome")
    there = written.get("exists", 0.0) + written.get("known", 0.0)
    waiting = figures.sum("kv_store_pending_blocks")
    reason = max(_NOT_KEPT, key=lambda name: written.get(name, 0.0))
    if why := _no_store(figures):
        return why
    if written.get(reason):
        return _NOT_KEPT[reason].format(n=int(written[reason]))
    if waiting:
        return f"{waiting:,.0f} blocks wait"
    if there:
        return f"all {there:,.0f} were there"
    return _no_request(figures) or "no request has computed a full block"


def _why_nothing_kept(figures: Figures) -> str:
    if not figures.store:
        return _no_store(figures)
    went = {one: figures.sum("kv_store_removed_blocks_total", reason=one) for one in STORE_REMOVALS}
    if any(went.values()):
        shown = ", ".join(f"{count:,.0f} {reason}" for reason, count in went.items() if count)
        return f"all went: {shown}"
    if figures.sum("kv_store_written_blocks_total", outcome="stored"):
        return "the store has not told since blocks were stored; ask again in a few seconds"
    return f"nothing was stored: {_why_nothing_stored(figures)}"


def _why_nothing_removed(figures: Figures) -> str:
    if why := _no_store(figures):
        return why
    if not figures.sum("kv_store_kept_blocks"):
        return "nothing was kept"
    return "nothing has expired, and less is taken than the mark above which room is made"
