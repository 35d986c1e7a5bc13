"""Which prompts does a benchmark send, and how many tokens does it ask for?

Random prompts are new in every run, so that no run finds what an earlier one left in a prefix
cache; the lengths are the same in every run, so that runs can be compared. A run is told apart by
its number, warm-up included, and everything follows from the seed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from deepinfer_core.bench.lengths import Lengths
from deepinfer_core.errors import RequestError

__all__ = ["GivenPrompts", "Load", "RandomPrompts", "check_fits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The requests of one run.

    Attributes:
        prompts: token ids of each.
        output_tokens: how many tokens to draw for each.
    """

    prompts: tuple[tuple[int, ...], ...]
    output_tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomPrompts:
    """Prompts of random tokens behind the beginning-of-sequence token.

    Attributes:
        count: requests of a run.
        inputs: lengths of the prompts, the first token included.
        outputs: lengths of the answers.
        vocabulary: ids are drawn below this.
        bos_id: first token of every prompt.
        seed: everything follows from it.
    """

    count: int
    inputs: Lengths
    outputs: Lengths
    vocabulary: int
    bos_id: int
    seed: int

    def load(self, run: int) -> Load:
        """The requests of one run."""
        lengths = random.Random(f"lengths:{self.seed}")
        sizes = [(self.inputs.draw(lengths), self.outputs.draw(lengths)) for _ in range(self.count)]
        tokens = random.Random(f"tokens:{self.seed}:{run}")
        prompts = [
            (self.bos_id, *(tokens.randrange(self.vocabulary) for _ in range(size - 1)))
            for size, _ in sizes
        ]
        return Load(prompts=tuple(prompts), output_tokens=tuple(wanted for _, wanted in sizes))


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenPrompts:
    """The same prompts in every run.

    Attributes:
        prompts: token ids of each.
        outputs: lengths of the answers.
        seed: lengths are drawn from it.
    """

    prompts: tuple[tuple[int, ...], ...]
    outputs: Lengths
    seed: int

    def load(self, run: int) -> Load:
        """The requests of one run; they do not depend on its number."""
        lengths = random.Random(f"lengths:{self.seed}")
        wanted = tuple(self.outputs.draw(lengths) for _ in self.prompts)
        return Load(prompts=self.prompts, output_tokens=wanted)


def check_fits(
    prompt_tokens: Sequence[int], output_tokens: Sequence[int], longest_tokens: int
) -> None:
    """Refuse a request that the engine would have to cut short.

    Args:
        prompt_tokens: length of each prompt.
        output_tokens: tokens to draw behind each.
        longest_tokens: longest prompt and answer together.

    Raises:
        RequestError: one is too long.
    """
    for place, (prompt, output) in enumerate(zip(prompt_tokens, output_tokens, strict=True)):
        if prompt + output > longest_tokens:
            raise RequestError(
                f"prompt {place + 1} has {prompt} tokens and {output} are to follow, the engine "
                f"holds {longest_tokens} together",
                hint="lower --input-len or --output-len, or raise engine.max_model_len if the "
                "model allows it",
            )
