"""Whatever happens in whatever order: nothing leaks, nobody starves, and no token changes.

A state machine submits, aborts, fails and expires requests on small engines of all kinds. The fake
runner keeps tokens where a model keeps keys, so a block or a state that is shared, restored or
written wrongly gives other tokens.
"""

import os
from itertools import count
from typing import Any

from deepinfer_core.engine.admission import Rules
from deepinfer_core.engine.batch import Batch
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.drafts.host import Drafting
from deepinfer_core.engine.outputs import Completion
from deepinfer_core.engine.pages import PageCounts
from deepinfer_core.engine.prefix_reuse import ReusePolicy
from deepinfer_core.engine.request_options import RequestOptions
from deepinfer_core.engine.sample_seeds import sample_seed
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.stored.exchange import Exchange
from deepinfer_core.engine.stored.limits import StoreLimits
from deepinfer_core.errors import DeadlineExceeded
from deepinfer_core.interfaces.device import InlineStream
from deepinfer_core.schedule.plan import StepPlan
from deepinfer_core.schedule.snapshot import Limits
from deepinfer_core.stores.memory import MemoryStore
from deepinfer_core.stores.retention import Limits as StoreKeeps
from deepinfer_core.testing.draft_budgets import RandomBudget
from deepinfer_core.testing.fake_draws import MOST_FAKE_DRAFTS, FakeGuesses, fake_token
from deepinfer_core.testing.fake_pages import FakePages, fake_groups
from deepinfer_core.testing.fake_runner import FakeRunner
from deepinfer_core.testing.late_stream import LateStream
from deepinfer_core.testing.plain_traffic import PlainTraffic
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

BLOCK = 4
LONGEST = 40
VOCABULARY = 1000
KINDS = ("agent", "chat", "state")
SCHEDULES = int(os.environ.get("SCHEDULES", "2000"))

# Prompts are beginnings of a few texts with a few endings, so that many share a prefix.
TEXTS = [[(7 * text + 3 * place) % VOCABULARY for place in range(LONGEST)] for text in range(3)]


STORE = MemoryStore(StoreKeeps(capacity_bytes=1 << 20, retention_s=dict.fromkeys(KINDS, 1e6)))


class Failed(Exception):
    """What a broken step raises."""


class Schedules(RuleBasedStateMachine):
    """Random requests on a random engine."""

    @initialize(
        rows=st.integers(4, 20),
        sequences=st.integers(1, 4),
        spare_blocks=st.integers(0, 8),
        snapshots=st.integers(0, 5),
        is_mixing=st.booleans(),
        is_asynchronous=st.booleans(),
        is_sharing=st.booleans(),
        is_late=st.booleans(),
        recovery=st.sampled_from(["exact", "bounded"]),
        drafts=st.integers(0, 3),
        store_slots=st.integers(0, 5),
        late_polls=st.integers(0, 3),
        has_states=st.booleans(),
    )
    def build(
        self,
        rows: int,
        sequences: int,
        spare_blocks: int,
        snapshots: int,
        is_mixing: bool,
        is_asynchronous: bool,
        is_sharing: bool,
        is_late: bool,
        recovery: Any,
        drafts: int,
        store_slots: int,
        late_polls: int,
        has_states: bool,
    ) -> None:
        self.breaks = self.breaks_copy = False
        self.now_s = 0.0
        self.indices = count()
        self.asked: dict[tuple[int, int], tuple[list[int], int, int]] = {}
        self.numbers: dict[tuple[int, int], int] = {}
        self.ended: dict[tuple[int, int], Completion] = {}
        blocks = LONGEST // BLOCK + spare_blocks
        limits = Limits(
            max_rows=max(rows, sequences * (1 + drafts)),
            max_sequences=sequences,
            block_tokens=BLOCK,
            usable_blocks=blocks,
            mixes=is_mixing,
            rows_each=1 + drafts,
        )
        policy = ReusePolicy(
            block_tokens=BLOCK,
            window_tokens=BLOCK,
            layers=2,
            is_enabled=is_sharing,
            recovery=recovery,
        )
        slots = 1 + sequences + snapshots
        counts = PageCounts(blocks=blocks + 1, slots=slots, snapshots=snapshots)
        drafting = Drafting(drafts, RandomBudget(drafts)) if drafts else None
        stream = LateStream() if is_late else InlineStream()
        guesses = FakeGuesses(drafts, VOCABULARY) if drafts else None
        runner = FakeRunner(VOCABULARY, BLOCK, self.before_step, stream, guesses)
        self.traffic, exchange = None, None
        if store_slots and is_sharing:
            # A state may be ahead by drafts that were rejected.
            groups = fake_groups(BLOCK, LONGEST + MOST_FAKE_DRAFTS)
            STORE.close()
            STORE.open(groups if has_states else groups[:1])
            self.traffic = PlainTraffic(
                STORE,
                slots=store_slots,
                batch_blocks=2,
                late_polls=late_polls,
                meanwhile=stream.drain,
            )
            exchange = Exchange(
                self.traffic,
                FakePages(runner, self.before_copy),
                policy,
                StoreLimits(fetch_timeout_s=8.0, backlog_blocks=3, step_blocks=2),
                clock_s=lambda: self.now_s,
            )
        batch = Batch(limits, counts, policy, drafting, exchange)
        self.engine = Engine(
            runner,
            batch,
            Rules(vocabulary=VOCABULARY, max_model_tokens=LONGEST),
            is_asynchronous=is_asynchronous,
            clock_s=lambda: self.now_s,
            priority_boost_s=3.0,
        )

    def before_step(self, plan: StepPlan) -> None:
        if self.breaks:
            self.breaks = False
            raise Failed("broken on purpose")

    def before_copy(self) -> None:
        if self.breaks_copy:
            self.breaks_copy = False
            raise Failed("broken on purpose")

    @rule(
        text=st.integers(0, 2),
        length=st.integers(1, LONGEST - 1),
        ending=st.one_of(st.none(), st.integers(0, VOCABULARY - 1)),
        most=st.integers(1, 12),
        priority=st.integers(-2, 2),
        samples=st.sampled_from([1, 1, 1, 2, 3]),
        timeout_s=st.one_of(st.none(), st.none(), st.integers(1, 30)),
        is_scored=st.sampled_from([False, False, False, True]),
    )
    def submit(
        self,
        text: int,
        length: int,
        ending: int | None,
        most: int,
        priority: int,
        samples: int,
        timeout_s: int | None,
        is_scored: bool,
    ) -> None:
        index = next(self.indices)
        prompt = TEXTS[text][:length]
        if ending is not None:
            prompt[-1] = ending
        params = SamplingParams(
            max_tokens=most, seed=index, n=samples, prompt_logprobs=is_scored or None
        )
        options = RequestOptions(priority=priority, timeout_s=timeout_s)
        first = None
        for sample in range(samples):
            number = self.engine.submit(
                index, prompt, params, sample=sample, options=options, follows=first
            )
            first = number if first is None else first
            self.numbers[index, sample] = number
            self.asked[index, sample] = (prompt, min(most, LONGEST - length), index)

    @precondition(lambda self: self.numbers)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from(sorted(self.numbers)))
        update = self.engine.abort(self.numbers[place])
        assert update is not None
        self.take(update.delta.completion)

    @rule(steps=st.integers(1, 6))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.now_s += 1
            for update in self.engine.step():
                self.take(update.delta.completion)
            self.engine.check_integrity()

    @rule()
    def fail_the_next_step(self) -> None:
        self.breaks = True

    @rule()
    def fail_the_next_copy(self) -> None:
        self.breaks_copy = True

    @precondition(lambda self: self.traffic is not None)
    @rule()
    def hang_or_go_on(self) -> None:
        self.traffic.is_hung = not self.traffic.is_hung

    @precondition(lambda self: self.traffic is not None)
    @rule()
    def forget_what_is_in_memory(self) -> None:
        """As if room had been needed; what is in the store stays."""
        self.engine.batch.pages.cache.clear()

    @precondition(lambda self: self.traffic is not None and len(self.engine.batch))
    @rule()
    def reset(self) -> None:
        self.engine.reset()
        for place in self.numbers:
            del self.asked[place]
        self.numbers.clear()
        assert not self.traffic.slots_out

    def take(self, completion: Completion | None) -> None:
        if completion is not None:
            place = (completion.index, completion.sample)
            assert place not in self.ended
            self.ended[place] = completion
            del self.numbers[place]

    @invariant()
    def books_are_right(self) -> None:
        self.engine.check_integrity()

    def teardown(self) -> None:
        """Everybody ends soon, as alone, and everything is given back."""
        if not hasattr(self, "engine"):
            return
        self.breaks = False
        # A step feeds the first sequence a row or, where kinds take turns, the next one does; a
        # last step only reads results. Preempted rows count again, at most once a sequence ahead.
        work = sum(len(prompt) + most + 4 for prompt, most, _ in self.asked.values())
        bound = 4 * (1 + len(self.asked)) * (work + 1)
        for _ in range(bound):
            if not len(self.engine.batch):
                break
            self.step(1)
        assert not self.numbers, "somebody starves"
        for place, completion in self.ended.items():
            self.compare(completion, *self.asked[place])
        if self.traffic is not None:
            self.traffic.is_hung = False
            while self.engine.has_work:
                self.step(1)
            assert not self.traffic.slots_out
        pages = self.engine.batch.pages
        assert pages.cache.free_blocks == self.engine.batch.limits.usable_blocks
        assert not pages.cache.reserved_slots

    def compare(self, done: Completion, prompt: list[int], most: int, seed: int) -> None:
        wanted = list(prompt)
        for _ in range(most):
            token = fake_token(
                sample_seed(seed, done.sample), len(wanted), tuple(wanted), VOCABULARY
            )
            wanted.append(token)
        answer = tuple(wanted[len(prompt) :])
        assert done.token_ids == answer[: len(done.token_ids)]
        usage = done.usage
        assert max(usage.replayed_tokens, usage.stored_tokens) <= usage.cached_tokens
        assert usage.cached_tokens < max(len(prompt), 1)
        if done.finish_reason == "error":
            assert isinstance(done.error, DeadlineExceeded) or "broken on purpose" in str(
                done.error
            )
        elif done.finish_reason != "abort":
            assert done.token_ids == answer
            if done.prompt_logprobs is not None:
                assert [entry is None for entry in done.prompt_logprobs] == [
                    place == 0 for place in range(len(prompt))
                ]


TestSchedules = Schedules.TestCase
TestSchedules.settings = settings(
    max_examples=SCHEDULES, stateful_step_count=25, deadline=None, derandomize=True
)
