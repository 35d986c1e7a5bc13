"""What does the engine tell about its work, and where does that go?

The step loop reports three events as plain values; levels that exist anyway, such as free blocks,
are asked for when somebody looks. So a step pays for what happened in it and nothing else, and an
engine that stands still shows what it holds now, not what it held in its last step.

Values of the hot path are named tuples: a step at 256 sequences may cost one millisecond in all.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from deepinfer_core.engine.outputs import FinishReason, Timeline, Usage
from deepinfer_core.engine.prompt_sources import PromptSources, source_labels
from deepinfer_core.engine.stored.counts import StoreCounts
from deepinfer_core.engine.stored.parts import Part, part_labels
from deepinfer_core.telemetry.board import Board
from deepinfer_core.telemetry.metric_list import DRAFT_PLACES, FINISH_REASONS, STEP_KINDS
from deepinfer_core.telemetry.statistics import Report, StatisticsLine, log_figures

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["Instruments", "Readings", "StepFacts"]


class Readings(NamedTuple):
    """What an engine holds now, and what it has counted since it was made.

    Attributes:
        running, waiting: sequences.
        used_blocks: blocks that sequences hold.
        idle_blocks: blocks that nobody holds, kept for their contents.
        free_blocks: empty blocks.
        used_slots: state slots that sequences hold.
        snapshots: state slots that hold a snapshot.
        free_slots: empty state slots.
        preemptions: so far; like all counts it never falls while the engine lives.
        lookups: prompts looked up in the prefix cache so far.
        hit_blocks: blocks that lookups took over so far.
        evicted_blocks, evicted_snapshots: that made room for others so far.
        late_kernels: built since the engine was ready.
        store: what came from a store and went there; None: there is no store.
    """

    running: int
    waiting: int
    used_blocks: int
    idle_blocks: int
    free_blocks: int
    used_slots: int
    snapshots: int
    free_slots: int
    preemptions: int = 0
    lookups: int = 0
    hit_blocks: int = 0
    evicted_blocks: int = 0
    evicted_snapshots: int = 0
    late_kernels: int = 0
    store: StoreCounts | None = None


class StepFacts(NamedTuple):
    """One step whose results were handled. All times are of one monotonic clock, in seconds.

    Attributes:
        kind: of ``STEP_KINDS``.
        prompt_rows: rows of chunks, recomputed and replayed ones included; see ``StepKind``.
        decode_rows: the other rows.
        ended_s: when its last output was handled.
        elapsed_s: from the end of the step before, or from its own start if none was under way
            then, to ``ended_s``: elapsed times of steps never overlap.
        schedule_s: deciding it, and launching its forward pass and its sampling.
        wait_s: waiting for its results.
        output_s: handling them.
        queued_s: from arrival to scheduling, of each sequence that entered for the first time.
        first_tokens_s: from arrival to the first token, of each sequence that drew its first one.
        previous_tokens_s: ``ended_s`` of the step that drew the token before, of each sequence
            that drew a later one; as many equal values as sequences.
        more_tokens: that sequences got beside one each, because drafts were accepted.
        verified: of each sequence whose drafts were verified, how many, and how many of them were
            accepted.
    """

    kind: str
    prompt_rows: int
    decode_rows: int
    ended_s: float
    elapsed_s: float
    schedule_s: float
    wait_s: float
    output_s: float
    queued_s: Sequence[float] = ()
    first_tokens_s: Sequence[float] = ()
    previous_tokens_s: Sequence[float] = ()
    more_tokens: int = 0
    verified: Sequence[tuple[int, int]] = ()


class Instruments:
    """All measuring devices of one engine. Its methods may be called from several threads.

    Args:
        read: what the engine holds; called with a lock held, so it must be quick and must not call
            back. It keeps alive what it refers to: let it know the queues, not the model.
        version: of the package.
        model: a name of the checkpoint that may be shown.
        components: by slot.
        classes: of traffic that requests may belong to.
        parts: the store and those that it consists of.
        statistics_interval_s: seconds between two statistics lines; 0: none.
        report: gets the figures of each line.
        clock_s: the monotonic clock of all times.

    Attributes:
        board: all figures.
    """

    def __init__(
        self,
        read: Callable[[], Readings],
        *,
        version: str,
        model: str,
        components: Mapping[str, str] | None = None,
        classes: Sequence[str] = ("agent", "chat"),
        parts: Sequence[Part] = (),
        statistics_interval_s: float = 0.0,
        report: Report = log_figures,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        picked = tuple(sorted((components or {}).items()))
        described = {"build_info": ((version, model),), "component_info": picked}
        labels = {"prompt_source_tokens_total": source_labels(classes), **part_labels(parts)}
        self.board = Board(described, self._refresh, labelled=labels)
        self._read, self._clock_s, self._parts = read, clock_s, parts
        self._sources = PromptSources(self.board, classes)
        self._find_series()
        self._line: StatisticsLine | None = None
        if statistics_interval_s > 0:
            self._line = StatisticsLine(
                self.board, statistics_interval_s, started_s=clock_s(), report=report
            )

    def _find_series(self) -> None:
        """Look up once what steps and requests change."""
        board = self.board
        self._arrived = board.number("requests_total")
        self._ended = {one: board.number("requests_finished_total", one) for one in FINISH_REASONS}
        self._aborted = board.number("requests_aborted_total")
        self._prompt_tokens = board.number("prompt_tokens_total")
        self._cached_tokens = board.number("prompt_cached_tokens_total")
        self._replayed_tokens = board.number("prompt_replayed_tokens_total")
        self._stored_tokens = board.number("prompt_stored_tokens_total")
        self._drawn_tokens = board.number("generation_tokens_total")
        self._draft_rounds = board.number("draft_rounds_total")
        self._drafts, self._accepted = (
            [board.number(name, place) for place in DRAFT_PLACES]
            for name in ("draft_tokens_total", "accepted_draft_tokens_total")
        )
        self._prompt_rows = board.number("rows_total", "prompt")
        self._decode_rows = board.number("rows_total", "decode")
        self._queue = board.distribution("queue_seconds")
        self._first_token = board.distribution("time_to_first_token_seconds")
        self._between_tokens = board.distribution("inter_token_latency_seconds")
        self._request = board.distribution("request_seconds")
        self._prompt_length = board.distribution("request_prompt_tokens")
        self._output_length = board.distribution("request_generation_tokens")
        self._step_rows = board.distribution("step_rows")
        self._step = {kind: board.distribution("step_seconds", kind) for kind in STEP_KINDS}
        self._schedule = board.distribution("step_schedule_seconds")
        self._wait = board.distribution("step_wait_seconds")
        self._output = board.distribution("step_output_seconds")
        self._send = board.distribution("step_send_seconds")
        self._grammar_hits = board.number("grammar_cache_hits_total")
        self._grammar_misses = board.number("grammar_cache_misses_total")
        self._grammars_waiting = board.number("grammars", "waiting")
        self._grammars_compiling = board.number("grammars", "compiling")
        self._grammar_compile = board.distribution("grammar_compile_seconds")

    @cached_property
    def registry(self) -> CollectorRegistry:
        """The figures as a registry of the Prometheus client library; this engine's alone."""
        from deepinfer_core.telemetry.registry import new_registry

        return new_registry(self.board)

    def arrived(self) -> None:
        """A request was accepted; each of ``n`` answers is one."""
        # A line that is due covers the time before, so that idle time ends with a window.
        self.tick()
        with self.board.lock:
            self._arrived.value += 1

    def stepped(self, facts: StepFacts) -> None:
        """A step's results were handled; the sequences that it ended have left."""
        ended_s, first_tokens_s = facts.ended_s, facts.first_tokens_s
        with self.board.lock:
            self._prompt_rows.value += facts.prompt_rows
            self._decode_rows.value += facts.decode_rows
            drawn = len(first_tokens_s) + len(facts.previous_tokens_s) + facts.more_tokens
            self._drawn_tokens.value += drawn
            self._step_rows.observe(facts.prompt_rows + facts.decode_rows)
            self._step[facts.kind].observe(facts.elapsed_s)
            self._schedule.observe(facts.schedule_s)
            self._wait.observe(facts.wait_s)
            self._output.observe(facts.output_s)
            for queued_s in facts.queued_s:
                self._queue.observe(queued_s)
            for first_s in first_tokens_s:
                self._first_token.observe(first_s)
            # Nearly all sequences drew their last token in the same step: few distinct values.
            for previous_s, times in Counter(facts.previous_tokens_s).items():
                self._between_tokens.observe(ended_s - previous_s, times)
            if facts.more_tokens:
                self._between_tokens.observe(0.0, facts.more_tokens)
            for (drafts, accepted), times in Counter(facts.verified).items():
                self._verified(drafts, accepted, times)
        if self._line is not None:
            self._line.saw_first_tokens(first_tokens_s)
            self._line.tick(ended_s)

    def sent(self, elapsed_s: float) -> None:
        """What a step gave was handed to another process."""
        with self.board.lock:
            self._send.observe(elapsed_s)

    def grammar_asked(self, *, is_known: bool) -> None:
        """A request asked for a grammar, and whether it was known what becomes of it."""
        with self.board.lock:
            (self._grammar_hits if is_known else self._grammar_misses).value += 1

    def grammar_compiled(self, elapsed_s: float) -> None:
        """Compiling a grammar ended, with whatever outcome."""
        with self.board.lock:
            self._grammar_compile.observe(elapsed_s)

    def grammars_now(self, *, waiting: int, compiling: int) -> None:
        """So many grammars wait for their turn to be compiled, and so many have it."""
        with self.board.lock:
            self._grammars_waiting.value, self._grammars_compiling.value = waiting, compiling

    def _verified(self, drafts: int, accepted: int, times: int) -> None:
        """So many sequences had so many drafts verified and accepted."""
        self._draft_rounds.value += times
        for counts, many in ((self._drafts, drafts), (self._accepted, accepted)):
            for place in range(many):
                counts[min(place, len(counts) - 1)].value += times

    def finished(
        self, reason: FinishReason, usage: Usage, timeline: Timeline, retention: str = "agent"
    ) -> None:
        """A request that had arrived ended."""
        with self.board.lock:
            self._ended[reason].value += 1
            self._aborted.value += reason == "abort"
            self._prompt_tokens.value += usage.prompt_tokens
            self._cached_tokens.value += usage.cached_tokens
            self._replayed_tokens.value += usage.replayed_tokens
            self._stored_tokens.value += usage.stored_tokens
            self._sources.count(usage, retention)
            self._request.observe(timeline.total_s)
            self._prompt_length.observe(usage.prompt_tokens)
            self._output_length.observe(usage.completion_tokens)

    def tick(self) -> None:
        """Write a statistics line if one is due; for whoever wants lines of an idle engine."""
        if self._line is not None:
            self._line.tick(self._clock_s())

    def _refresh(self) -> None:
        readings, board = self._read(), self.board
        usable = readings.used_blocks + readings.idle_blocks + readings.free_blocks
        levels = {
            ("requests_running",): readings.running,
            ("requests_waiting",): readings.waiting,
            ("kv_cache_usage_ratio",): readings.used_blocks / usable if usable else 0.0,
            ("kv_cache_blocks", "used"): readings.used_blocks,
            ("kv_cache_blocks", "idle"): readings.idle_blocks,
            ("kv_cache_blocks", "free"): readings.free_blocks,
            ("state_slots", "used"): readings.used_slots,
            ("state_slots", "snapshot"): readings.snapshots,
            ("state_slots", "free"): readings.free_slots,
            ("preemptions_total",): readings.preemptions,
            ("prefix_cache_lookups_total",): readings.lookups,
            ("prefix_cache_hit_blocks_total",): readings.hit_blocks,
            ("prefix_cache_evicted_blocks_total",): readings.evicted_blocks,
            ("prefix_cache_evicted_snapshots_total",): readings.evicted_snapshots,
            ("late_kernels_total",): readings.late_kernels,
        }
        for series, value in levels.items():
            board.number(*series).value = value
        if readings.store is not None:
            readings.store.show(board, self._parts, self._clock_s())
