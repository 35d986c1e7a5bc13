"""Which stand-ins run the engine without a model?

``FakeRunner`` keeps tokens where a model would keep keys, so that a wrong block table, a leaked or
shared block, a lost row or a wrong state slot shows at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

from deepinfer_core.engine.byte_letters import BYTE_LETTERS
from deepinfer_core.engine.rows import RowRequest, RowResult, Runner, StepHandle
from deepinfer_core.interfaces.device import Event, InlineStream, Stream
from deepinfer_core.schedule.plan import Copy, SequenceStep, StepPlan

__all__ = ["CONTROL_TOKENS", "FakeRunner", "byte_tokenizer_source", "fake_token"]


CONTROL_TOKENS = (
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<｜▁pad▁｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<｜System｜>",
    "<think>",
    "</think>",
    "｜DSML｜",
)
"""Control tokens of ``byte_tokenizer_source``, at ids 0 and following; byte b has id 9 + b."""


def fake_token(seed: int, position: int, history: tuple[int, ...], vocabulary: int) -> int:
    """The token that ``FakeRunner`` draws for a position behind a history of all earlier tokens."""
    text = f"{seed}:{position}:{history}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) % vocabulary


class _FakeStep(StepHandle):
    """Histories of the wanted rows, then what was drawn from them."""

    def __init__(self) -> None:
        self.ends: list[Event] = []
        self.histories: list[tuple[int, ...]] | None = None
        self.results: tuple[RowResult, ...] = ()


class FakeRunner(Runner):
    """Draws a function of seed, position and the history that its blocks hold.

    A state slot holds the whole history of its sequence, so that a state restored too early, too
    late or from elsewhere raises.

    Args:
        vocabulary: number of token ids.
        block_tokens: tokens in one block.
        before_step: called with the plan of each step, to raise in a test.
        stream: where the steps run; None runs each at once.

    Attributes:
        plans: every plan that was executed.
    """

    def __init__(
        self,
        vocabulary: int = 1000,
        block_tokens: int = 128,
        before_step: Callable[[StepPlan], None] = lambda plan: None,
        stream: Stream | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        self.block_tokens = block_tokens
        self.before_step = before_step
        self.plans: list[StepPlan] = []
        self._stream = stream or InlineStream()
        self._blocks: dict[int, dict[int, int]] = {}
        self._slots: dict[int, tuple[int, ...] | None] = {}
        self._broken: set[int] = set()

    def launch(self, plan: StepPlan, before: StepHandle | None) -> StepHandle:
        """Queue storing the rows; see ``Runner``."""
        assert before is None or isinstance(before, _FakeStep)
        step = _FakeStep()
        step.ends.append(self._stream.submit(lambda: self._forward(step, plan, before)))
        return step

    def sample(self, step: StepHandle, rows: tuple[RowRequest, ...]) -> None:
        """Queue drawing from what is stored; see ``Runner``."""
        assert isinstance(step, _FakeStep)
        if rows:
            step.ends.append(self._stream.submit(lambda: self._sample(step, rows)))

    def results(self, step: StepHandle) -> tuple[RowResult, ...]:
        """Wait; see ``Runner``."""
        assert isinstance(step, _FakeStep)
        for end in step.ends:
            end.wait()
        return step.results

    def drain(self) -> None:
        """Do what is queued."""
        self._stream.drain()

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()

    def _forward(self, step: _FakeStep, plan: StepPlan, before: _FakeStep | None) -> None:
        try:
            self.before_step(plan)
        except Exception:
            # What such a step leaves of its sequences means nothing to a step launched before.
            self._broken |= {entry.sequence_id for entry in plan.sequences}
            raise
        self.plans.append(plan)
        self._check_plan(plan)
        blocks = {copy.source: dict(self._blocks[copy.source]) for copy in plan.block_copies}
        for source, destination in plan.block_copies:
            self._blocks[destination] = dict(blocks[source])
        self._copy_slots(plan.restored_slots)
        histories: list[tuple[int, ...]] = []
        for entry in plan.sequences:
            whole = (0,) * (entry.start + len(entry.token_ids))
            if entry.sequence_id not in self._broken:
                self._store(_filled_in(entry, before))
                whole = self._history(entry)
            ends = [entry.start + 1 + row for row in range(entry.scored_rows)]
            ends += [len(whole)] if entry.wants_token else []
            histories += [whole[:end] for end in ends]
        self._copy_slots(plan.saved_slots)
        step.histories = histories

    def _sample(self, step: _FakeStep, rows: tuple[RowRequest, ...]) -> None:
        if step.histories is not None:
            step.results = self.draw(rows, [step.histories[row.row] for row in rows])

    def draw(
        self, rows: tuple[RowRequest, ...], histories: list[tuple[int, ...]]
    ) -> tuple[RowResult, ...]:
        """Draw for each row; for tests to watch or to replace.

        Args:
            rows: what is asked for, at least one row.
            histories: all tokens before each drawn one.
        """
        return tuple(map(self._drawn, rows, histories))

    def _copy_slots(self, copies: tuple[Copy, ...]) -> None:
        held = [self._slots.get(copy.source) for copy in copies]
        for copy, state in zip(copies, held, strict=True):
            self._slots[copy.destination] = state

    def _check_plan(self, plan: StepPlan) -> None:
        slots = [step.state_slot for step in plan.sequences]
        blocks = [block for step in plan.sequences for block in step.block_ids]
        if len(set(slots)) < len(slots) or 0 in blocks + slots:
            raise ValueError("two sequences share a slot, or one holds the dummy")

    def _store(self, step: SequenceStep) -> None:
        cached = {position: self._token_at(step, position) for position in range(step.cached_end)}
        for position, token in enumerate(step.token_ids, step.start):
            if position < step.cached_end:
                if cached[position] != token:
                    raise ValueError(
                        f"{token} is fed again at {position}, {cached[position]} cached"
                    )
                continue
            block = step.block_ids[position // self.block_tokens]
            self._blocks.setdefault(block, {})[position % self.block_tokens] = token
        whole = self._history(step)
        state = self._slots.get(step.state_slot)
        # Behind a replay the state is made of what is fed again.
        if step.start > step.valid_start and state != whole[: step.start]:
            raise ValueError(f"slot {step.state_slot} holds {state}, not the state of {step}")
        self._slots[step.state_slot] = whole

    def _token_at(self, step: SequenceStep, position: int) -> int:
        block, offset = divmod(position, self.block_tokens)
        return self._blocks[step.block_ids[block]][offset]

    def _history(self, step: SequenceStep) -> tuple[int, ...]:
        end = step.start + len(step.token_ids)
        found = tuple(self._token_at(step, position) for position in range(end))
        before = tuple(found[step.start - i] if step.start >= i else -1 for i in (1, 2, 3))
        if before != step.history:
            raise ValueError(f"the blocks hold {before} before the rows, the plan {step.history}")
        return found

    def _drawn(self, row: RowRequest, history: tuple[int, ...]) -> RowResult:
        if row.position != len(history):
            raise ValueError(f"row {row.row} ends {len(history)} tokens, not {row.position}")
        token = fake_token(row.settings.seed, row.position, history, self.vocabulary)
        if not row.allows_any(self.vocabulary):
            return RowResult(0, 0.0, 0.0, invalid=True)
        allowed = row.settings.allowed
        while token in row.banned or (allowed is not None and token not in allowed):
            token = (token + 1) % self.vocabulary
        if row.forced is not None:
            token = row.forced
        logprob = -1.0 - token / self.vocabulary
        top = tuple((i, -0.1 * (i + 1)) for i in range(row.settings.alternatives))
        return RowResult(token, logprob, logprob, top)


def _filled_in(step: SequenceStep, before: _FakeStep | None) -> SequenceStep:
    """With the token that the step before drew; any, if that one failed."""
    if step.drawn_index < 0:
        return step
    assert before is not None
    drawn = before.results[step.drawn_index].token_id if before.results else 0
    return step._replace(token_ids=(*step.token_ids[:-1], drawn))


def byte_tokenizer_source() -> str:
    """A ``tokenizer.json`` with one token for each byte and the control tokens of the family."""
    letters = {byte: letter for letter, byte in BYTE_LETTERS.items()}
    # Added tokens keep their ids only if the model's vocabulary has them too.
    vocabulary = {text: number for number, text in enumerate(CONTROL_TOKENS)}
    vocabulary |= {letters[byte]: len(CONTROL_TOKENS) + byte for byte in range(256)}
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    added = [
        {
            "id": number,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for number, text in enumerate(CONTROL_TOKENS)
    ]
    model: dict[str, object] = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": vocabulary,
        "merges": [],
    }
    spec = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": model,
    }
    return json.dumps(spec, ensure_ascii=False)
