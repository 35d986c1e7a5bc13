"""How do ways of decoding take turns on texts that grow alike? For ``planned_drafts``."""

import json
import time
from collections.abc import Sequence
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
TURN_TOKENS = 12
"""By which texts grow in one turn, on average."""
TURNS_OF_A_TEXT = 15
"""Before new ones begin; the longest of them may be twice as long."""


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
        tokens: emitted in all.
        sequence_steps: steps times sequences.
        verified: drafts that were planned for.
        steps: the times of each, as planners are told.
    """

    token_s: list[float] = field(default_factory=list)
    tokens: int = 0
    sequence_steps: int = 0
    verified: int = 0
    steps: list[StepTimes] = field(default_factory=list)


class Watched(DraftPlanner):
    """A planner, and what it decides and is told while that counts.

    Args:
        planner: that decides.
    """

    def __init__(self, planner: DraftPlanner) -> None:
        self._planner = planner
        self.turns: Turns | None = None

    def rows(self, views: Sequence[DraftView], *, other_rows: int) -> Sequence[int]:
        """As the planner says."""
        given = self._planner.rows(views, other_rows=other_rows)
        if self.turns is not None:
            self.turns.verified += sum(given) - len(given)
        return given

    def drafts_next(self) -> bool:
        """As the planner says."""
        return self._planner.drafts_next()

    def rest(self) -> int:
        """As the planner says."""
        return self._planner.rest()

    def learn(self, outcomes: Sequence[DraftOutcome]) -> None:
        """Tell the planner."""
        self._planner.learn(outcomes)

    def took(self, times: StepTimes) -> None:
        """Tell the planner."""
        if self.turns is not None:
            self.turns.steps.append(times)
        self._planner.took(times)


class Machine:
    """One engine with its texts.

    Args:
        has_drafter: whether it can draft.
        count: texts.
        args: of the command line.
    """

    def __init__(self, count: int, args: Any, *, has_drafter: bool) -> None:
        self.llm = opened(count, args, has_drafter=has_drafter)
        self._prompts = prompts(self.llm, count)
        self._numbers: list[int] = []
        self._is_over = True
        self._grown = self._wanted = 0
        self._temperature = 0.0

    def turn(self, turns: Turns, planner: Watched | None = None) -> None:
        """Decode until the texts have grown by so much more, and begin new ones where they end.

        Args:
            turns: take what is done.
            planner: decides about drafts.
        """
        count, drafting = len(self._prompts), self.llm.engine.batch.drafting
        if self._is_over or self._wanted >= TURNS_OF_A_TEXT * TURN_TOKENS * count:
            self._fill()
        if planner is not None and drafting is not None:
            drafting.use(planner)
        self._step()
        if planner is not None:
            planner.turns = turns
        emitted = steps = 0
        self._wanted += TURN_TOKENS * count
        began_s = time.process_time()
        while not steps or (self._grown < self._wanted and not self._is_over):
            emitted += self._step()
            steps += 1
        turns.token_s.append((time.process_time() - began_s) / emitted)
        turns.tokens += emitted
        turns.sequence_steps += steps * count
        if planner is not None:
            planner.turns = None

    def begin(self, temperature: float) -> None:
        """Begin anew, with another temperature."""
        self._temperature, self._is_over = temperature, True

    def stop(self) -> None:
        """End all texts."""
        for number in self._numbers:
            self.llm.engine.abort(number)
        while len(self.llm.engine.batch):
            self.llm.engine.step()
        self._numbers = []

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


def opened(count: int, args: Any, *, has_drafter: bool) -> LLM:
    """An engine for so many texts."""
    common = {
        "threads": 1, "max_num_seqs": count, "max_num_batched_tokens": max(512, 6 * count),
        "prefix_cache": False, "asynchronous": args.asynchronous,
    }  # fmt: skip
    if not has_drafter:
        return LLM(**common)
    # Steps are measured anew: what another day's machine took says nothing about this run.
    chosen: dict[str, object] = {"curve_ttl_s": 0.0}
    if args.calibration:
        chosen["calibration"] = str(args.calibration)
    drafter = {"use": "dspark.block", "options": chosen}
    speculation = {"budget": "planned", "rule": args.rule}
    return LLM(**common, components={"drafter": drafter}, speculation=speculation)
