"""Which stand-ins run the engine without a model?

``FakeRunner`` keeps tokens where a model would keep keys, so that a wrong block table, a leaked or
shared block, a lost row or a wrong state slot shows at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

from deepinfer_core.engine.byte_letters import BYTE_LETTERS
from deepinfer_core.engine.rows import RowRequest, RowResult, Runner
from deepinfer_core.schedule.plan import SequenceStep, StepPlan

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


class FakeRunner(Runner):
    """Draws a function of seed, position and the history that its blocks hold.

    Args:
        vocabulary: number of token ids.
        block_tokens: tokens in one block.
        before_step: called with the plan of each step, to raise in a test.

    Attributes:
        plans: every plan that was executed.
    """

    def __init__(
        self,
        vocabulary: int = 1000,
        block_tokens: int = 128,
        before_step: Callable[[StepPlan], None] = lambda plan: None,
    ) -> None:
        self.vocabulary = vocabulary
        self.block_tokens = block_tokens
        self.before_step = before_step
        self.plans: list[StepPlan] = []
        self._blocks: dict[int, dict[int, int]] = {}
        self._slots: dict[int, tuple[int, int]] = {}

    def execute(self, plan: StepPlan, rows: tuple[RowRequest, ...]) -> tuple[RowResult, ...]:
        """Store the rows, then draw from what is stored; see ``Runner``."""
        self.before_step(plan)
        self.plans.append(plan)
        self._check_plan(plan)
        histories: list[tuple[int, ...]] = []
        for step in plan.sequences:
            self._store(step)
            whole = self._history(step)
            histories += [whole[: step.start + i + 1] for i in range(len(step.token_ids))]
        return tuple(self._draw(row, histories[row.row]) for row in rows)

    def _check_plan(self, plan: StepPlan) -> None:
        blocks = [block for step in plan.sequences for block in step.block_ids]
        slots = [step.state_slot for step in plan.sequences]
        if len(set(blocks)) < len(blocks) or len(set(slots)) < len(slots) or 0 in blocks + slots:
            raise ValueError("two sequences share a block or a slot, or one holds the dummy")

    def _store(self, step: SequenceStep) -> None:
        behind = self._slots.get(step.state_slot)
        if step.start and behind != (step.sequence_id, step.start):
            raise ValueError(f"slot {step.state_slot} holds {behind}, not the state of {step}")
        self._slots[step.state_slot] = (step.sequence_id, step.start + len(step.token_ids))
        for position, token in enumerate(step.token_ids, step.start):
            block = step.block_ids[position // self.block_tokens]
            self._blocks.setdefault(block, {})[position % self.block_tokens] = token

    def _history(self, step: SequenceStep) -> tuple[int, ...]:
        end = step.start + len(step.token_ids)
        places = [divmod(position, self.block_tokens) for position in range(end)]
        found = tuple(self._blocks[step.block_ids[block]][offset] for block, offset in places)
        before = tuple(found[step.start - i] if step.start >= i else -1 for i in (1, 2, 3))
        if before != step.history:
            raise ValueError(f"the blocks hold {before} before the rows, the plan {step.history}")
        return found

    def _draw(self, row: RowRequest, history: tuple[int, ...]) -> RowResult:
        if row.position != len(history):
            raise ValueError(f"row {row.row} ends {len(history)} tokens, not {row.position}")
        token = fake_token(row.seed, row.position, history, self.vocabulary)
        if not row.allows_any(self.vocabulary):
            return RowResult(token_id=0, logprob=0.0, processed_logprob=0.0, invalid=True)
        while token in row.banned or (row.allowed is not None and token not in row.allowed):
            token = (token + 1) % self.vocabulary
        if row.forced is not None:
            token = row.forced
        logprob = -1.0 - token / self.vocabulary
        top = tuple((i, -0.1 * (i + 1)) for i in range(row.alternatives))
        return RowResult(token_id=token, logprob=logprob, processed_logprob=logprob, top=top)


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
