"""How do ways of decoding take turns on texts that grow alike? For ``planned_drafts``.

A turn begins where every other does: the drafts that the way before left are thrown away by a step
without, then two steps do not count, the first of which has no drafts to verify, as no turn's has,
and the next of which is the first that has. Garbage of others is collected before the clock starts.
"""

import gc
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepinfer_core.engine.drafts.host import VerifyAll
from deepinfer_core.interfaces.draft_planner import (
    DraftOutcome,
    DraftPlanner,
    DraftView,
    StepTimes,
)

from deepinfer_core import LLM, SamplingParams

HELDOUT = Path(__file__).parent.parent / "tests" / "data" / "heldout.jsonl"
OPENING_WORDS = 8
TURN_TOKENS = 24
"""By which texts grow in one turn, on average."""
TURNS_OF_A_TEXT = 8
"""Before new ones begin, of all ways together; a text may be three times as long."""
LEADING_STEPS = 2
"""Of a turn, which do not count."""


class Never(VerifyAll):
    """No drafts; asked as often as the planner of a drafter is while it wants none."""

    def rows(self, views: Sequence[DraftView], *, other_rows: int) -> Sequence[int]:
        """One for each."""
        return (1,) * len(views)

    def drafts_next(self) -> bool:
        """No."""
        return False

    def rest(self) -> int:
        """15 steps of 16."""
        return 15


@dataclass
class Turns:
    """What one way of decoding did in its turns.

    Attributes:
        token_s: seconds of processor time a token, by turn.
        steps: the times of each step that counts, as planners are told.
        planning_s: elapsed seconds in which the planner decided and learnt, in these steps.
    """

    token_s: list[float] = field(default_factory=list)
    steps: list[StepTimes] = field(default_factory=list)
    planning_s: float = 0.0


class Watched(DraftPlanner):
    """A planner, and what it is told of steps that count.

    Args:
        planner: that decides.
    """

    def __init__(self, planner: DraftPlanner) -> None:
        self._planner = planner
        self._turns, self._leading = Turns(), 0

    def begin(self, turns: Turns) -> None:
        """Note the steps of a turn, of whose leading ones the planner was not told yet."""
        self._turns, self._leading = turns, LEADING_STEPS

    def rows(self, views: Sequence[DraftView], *, other_rows: int) -> Sequence[int]:
        """As the planner says."""
        with self._timed():
            return self._planner.rows(views, other_rows=other_rows)

    def drafts_next(self) -> bool:
        """As the planner says."""
        return self._planner.drafts_next()

    def rest(self) -> int:
        """As the planner says."""
        return self._planner.rest()

    def learn(self, outcomes: Sequence[DraftOutcome]) -> None:
        """Tell the planner."""
        with self._timed():
            self._planner.learn(outcomes)

    def took(self, times: StepTimes) -> None:
        """Tell the planner."""
        if self._leading:
            self._leading -= 1
        else:
            self._turns.steps.append(times)
        with self._timed():
            self._planner.took(times)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began_s = time.perf_counter()
        yield
        if not self._leading:
            self._turns.planning_s += time.perf_counter() - began_s


class Machine:
    """One engine with its texts.

    Args:
        count: texts.
        args: of the command line.

    Attributes:
        planner: of its drafter.
    """

    def __init__(self, count: int, args: Any) -> None:
        self.llm = opened(count, args)
        engine: Any = self.llm.engine
        self._drafting, self._stage = engine.batch.drafting, engine.runner.stage
        self.planner: DraftPlanner = self._drafting.planner
        self._prompts = prompts(self.llm, count)
        self._numbers: list[int] = []
        self._is_over = True
        self._grown = self._wanted = 0
        self._temperature = 0.0

    def turn(self, turns: Turns, planner: Watched | None = None) -> None:
        """Decode until the texts have grown by so much more, and begin new ones where they end.

        Args:
            turns: take what is done.
            planner: decides about drafts; None: the drafter is put aside, and the engine is one
                without.
        """
        count, engine = len(self._prompts), self._begin()
        if self._is_over or self._wanted >= TURNS_OF_A_TEXT * TURN_TOKENS * count:
            self._fill()
        self._step()
        if planner is None:
            engine.batch.drafting = engine.runner.stage = None
        else:
            self._drafting.use(planner)
            planner.begin(turns)
        for _ in range(LEADING_STEPS):
            self._step()
        gc.collect()
        emitted = steps = 0
        self._wanted += TURN_TOKENS * count
        began_s = time.process_time()
        while not steps or (self._grown < self._wanted and not self._is_over):
            emitted += self._step()
            steps += 1
        turns.token_s.append((time.process_time() - began_s) / emitted)

    def begin(self, temperature: float) -> None:
        """Begin anew, with another temperature."""
        self._temperature, self._is_over = temperature, True

    def stop(self) -> None:
        """End all texts, and tell the planner of its last steps."""
        self._begin()
        for number in self._numbers:
            self.llm.engine.abort(number)
        while len(self.llm.engine.batch):
            self.llm.engine.step()
        self._numbers = []

    def _begin(self) -> Any:
        """The engine, as it is where a turn begins: no drafts are made."""
        engine: Any = self.llm.engine
        engine.batch.drafting, engine.runner.stage = self._drafting, self._stage
        self._drafting.use(Never())
        return engine

    def _step(self) -> int:
        """Tokens of one step."""
        updates = self.llm.engine.step()
        self._is_over |= any(delta.completion is not None for _, delta in updates)
        emitted = sum(len(delta.token_ids) for _, delta in updates)
        self._grown += emitted
        return emitted

    def _fill(self) -> None:
        """Let new texts grow."""
        self.stop()
        usual: dict[str, Any] = {
            "temperature": self._temperature, "ignore_eos": True,
            "max_tokens": 3 * TURNS_OF_A_TEXT * TURN_TOKENS,
        }  # fmt: skip
        engine = self.llm.engine
        self._numbers = [
            engine.submit(index, each, SamplingParams(seed=index, **usual))
            for index, each in enumerate(self._prompts)
        ]
        begun: set[int] = set()
        while len(begun) < len(self._prompts):
            begun |= {number for number, delta in engine.step() if delta.token_ids}
        self._is_over, self._grown, self._wanted = False, 0, 0


def prompts(llm: LLM, count: int) -> list[list[int]]:
    """Openings by turns from stories and conversations, again from the first if there are few."""
    lines = list(map(json.loads, HELDOUT.read_text(encoding="utf-8").splitlines()))
    stories = [line["text"] for line in lines if line["source"] == "tinystories"]
    chats = [line["ids"] for line in lines if line["source"] == "story_chat"]
    assert llm.engine.tokenizer is not None
    answer = llm.engine.tokenizer.control_id("<｜Assistant｜>")
    found = []
    for number in range(count):
        if number % 2:
            ids = chats[number // 2 % len(chats)]
            found.append(ids[: len(ids) - ids[::-1].index(answer)])
        else:
            words = stories[number // 2 % len(stories)].split()
            found.append(llm.encode(" ".join(words[:OPENING_WORDS])))
    return found


def opened(count: int, args: Any) -> LLM:
    """An engine for so many texts."""
    # Steps are measured anew: what another day's machine took says nothing about this run.
    chosen: dict[str, object] = {"curve_ttl_s": 0.0}
    if args.calibration:
        chosen["calibration"] = str(args.calibration)
    return LLM(
        threads=1, max_num_seqs=count, max_num_batched_tokens=max(512, 6 * count),
        prefix_cache=False, asynchronous=args.asynchronous,
        components={"drafter": {"use": "dspark.block", "options": chosen}},
        speculation={"budget": "planned", "rule": args.rule},
    )  # fmt: skip
