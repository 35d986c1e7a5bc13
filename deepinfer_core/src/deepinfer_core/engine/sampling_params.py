"""What may a caller ask of one request, and which values are allowed?

Every field is checked when the object is made, so that a bad value is reported where it was made.
Names follow DeepInfer 0.1.0 where it has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from deepinfer_core.engine.checks import (
    check_alternatives,
    check_bad_words,
    check_flag,
    check_integer,
    check_logit_bias,
    check_number,
    check_stop_strings,
    check_token_ids,
    check_token_sequences,
)
from deepinfer_core.engine.grammar_request import GrammarRequest, checked_grammar
from deepinfer_core.errors import RequestError

__all__ = ["SamplingParams"]

_MAX_COUNT = (1 << 31) - 1
_MAX_SEED = (1 << 64) - 1
_MAX_SAMPLES = 128
_MAX_TEMPERATURE = 10**9
"""Above it nothing changes any more, and single precision ends somewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the tokens of one request are drawn, and when it ends.

    A request ends at the first of: the end-of-sequence token or one of ``stop_token_ids``, a stop
    string, ``max_tokens`` or the longest sequence that the engine holds.

    The model's logits are changed in this order: tokens that may not be drawn, ``logit_bias``,
    ``repetition_penalty``, ``frequency_penalty``, ``presence_penalty``, ``temperature``; then
    ``top_p`` and ``top_k``, ``min_p``.

    Attributes:
        n: 1 to 128 answers, drawn independently; each is a completion of its own. The first has
            the request's seed, the others seeds that follow from it.
        temperature: 0 to 10^9; 0 takes the likeliest token, of equal ones the lowest id.
        top_p: in (0, 1]; draw from the fewest likeliest tokens whose mass exceeds this.
        top_k: draw from so many likeliest tokens; -1 from all.
        min_p: in [0, 1); leave out tokens below this share of the likeliest one's probability.
        repetition_penalty: 0.01 to 100; the logit of a token that stands in the prompt or the
            output is divided by this if it is positive, else multiplied. 1 changes nothing.
        frequency_penalty: -2 to 2; subtracted from the logit of a token for each time that it
            stands in the output.
        presence_penalty: -2 to 2; subtracted once if the token stands in the output.
        logit_bias: number from -100 to 100 for each of some tokens, added to their logits.
        allowed_token_ids: draw these only, at least one; None allows all.
        bad_words: text, or texts, whose tokens are not drawn one after the other, at the beginning
            of the output or behind other tokens, with a blank before them or without one. Other
            tokens that spell the same text are not looked for.
        bad_words_ids: the same for sequences of token ids.
        max_tokens: >= 1; the engine's longest sequence may end a request sooner.
        min_tokens: before so many tokens neither the end nor a stop token is drawn, and stop
            strings are not looked for.
        first_n_token_no_eos: before so many tokens the end is not drawn.
        seed: 0 to 2^64 - 1; None draws one for each request. Requests with equal seed and prompt
            get equal tokens.
        seq_seed: another name of ``seed``.
        stop: text, or up to 16 texts, that end the request; they are left out of the text.
        stop_token_ids: tokens that end the request like the end of the sequence does.
        include_stop_str_in_output: keep the stop string or stop token in the text.
        ignore_eos: go on after the end-of-sequence token.
        skip_special_tokens: leave control tokens out of the text.
        logprobs: False; True for each token's own log-probability; or how many alternatives to
            list with it, 0 to 20. Of the model's own distribution, before anything changes it.
        top_logprobs: > 0 is the same as ``logprobs`` of that number.
        prompt_logprobs: the same as ``logprobs``, for the tokens of the prompt but the first.
        golden_token_ids: tokens to emit in place of what is drawn, even those that may not be
            drawn; drawing goes on behind them.
        grammar: what the output must look like, a ``GrammarRequest`` or a mapping of its fields;
            the output ends where it is whole. It goes with none of ``ignore_eos``,
            ``min_tokens``, ``first_n_token_no_eos`` and ``golden_token_ids``.
        so_args: the same in the words of DeepInfer 0.1.0.

    Raises:
        RequestError: a value is of another type or out of range; the message names the field.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] | Iterable[tuple[int, float]] | None = None
    allowed_token_ids: Iterable[int] | None = None
    bad_words: str | Iterable[str] | None = None
    bad_words_ids: Iterable[Iterable[int]] | None = None
    max_tokens: int = 16
    min_tokens: int = 0
    first_n_token_no_eos: int = 0
    seed: int | None = None
    seq_seed: int | None = None
    stop: str | Iterable[str] | None = None
    stop_token_ids: Iterable[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    logprobs: bool | int | None = False
    top_logprobs: int = 0
    prompt_logprobs: bool | int | None = False
    golden_token_ids: Iterable[int] | None = None
    grammar: GrammarRequest | Mapping[str, Any] | None = None
    so_args: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Check every field and bring it to one form; see the class for what is raised."""
        self._check_distribution()
        self._check_rules()
        self._check_ends()
        check_alternatives("logprobs", self.logprobs)
        check_alternatives("top_logprobs", self.top_logprobs)
        check_alternatives("prompt_logprobs", self.prompt_logprobs)
        self._check_seed()
        set_field = object.__setattr__
        set_field(self, "stop", check_stop_strings("stop", self.stop))
        for name in ("stop_token_ids", "golden_token_ids"):
            set_field(self, name, check_token_ids(name, getattr(self, name)))
        set_field(self, "grammar", checked_grammar(self.grammar, self.so_args))
        if self.grammar is not None:
            self._check_beside_grammar()

    def _check_beside_grammar(self) -> None:
        for name in ("ignore_eos", "min_tokens", "first_n_token_no_eos", "golden_token_ids"):
            if getattr(self, name):
                raise RequestError(
                    f"grammar and {name} were given together",
                    hint="a text that must be whole cannot go on behind its end, or be given",
                )

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """``stop`` in the form that it has after checking."""
        return self.stop  # type: ignore[return-value]

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """``stop_token_ids`` in the form that it has after checking."""
        return self.stop_token_ids  # type: ignore[return-value]

    @property
    def biases(self) -> tuple[tuple[int, float], ...]:
        """``logit_bias`` in the form that it has after checking: pairs, ascending."""
        return self.logit_bias  # type: ignore[return-value]

    @property
    def allowed_ids(self) -> tuple[int, ...] | None:
        """``allowed_token_ids`` in the form that it has after checking."""
        return self.allowed_token_ids  # type: ignore[return-value]

    @property
    def bad_texts(self) -> tuple[str, ...]:
        """``bad_words`` in the form that it has after checking."""
        return self.bad_words  # type: ignore[return-value]

    @property
    def bad_sequences(self) -> tuple[tuple[int, ...], ...]:
        """``bad_words_ids`` in the form that it has after checking."""
        return self.bad_words_ids  # type: ignore[return-value]

    @property
    def golden_ids(self) -> tuple[int, ...]:
        """``golden_token_ids`` in the form that it has after checking."""
        return self.golden_token_ids  # type: ignore[return-value]

    @property
    def grammar_request(self) -> GrammarRequest | None:
        """``grammar`` or ``so_args`` in the form that it has after checking."""
        return self.grammar  # type: ignore[return-value]

    @property
    def alternatives(self) -> int | None:
        """Alternatives to list with each output token; None: no log-probabilities at all."""
        wanted = _alternatives(self.logprobs)
        return max(wanted or 0, self.top_logprobs) if self.top_logprobs else wanted

    @property
    def prompt_alternatives(self) -> int | None:
        """The same for the tokens of the prompt."""
        return _alternatives(self.prompt_logprobs)

    def _check_distribution(self) -> None:
        check_integer("n", self.n, 1, _MAX_SAMPLES)
        wanted = f"a number from 0 to {_MAX_TEMPERATURE}"
        check_number("temperature", self.temperature, wanted, lambda x: 0 <= x <= _MAX_TEMPERATURE)
        check_number("top_p", self.top_p, "a number above 0 and at most 1", lambda x: 0 < x <= 1)
        check_number("min_p", self.min_p, "a number from 0 to below 1", lambda x: 0 <= x < 1)
        if self.top_k != -1 or isinstance(self.top_k, bool):
            check_integer("top_k", self.top_k, 1, _MAX_COUNT, also="-1")

    def _check_rules(self) -> None:
        wanted = "a number from 0.01 to 100"
        check_number("repetition_penalty", self.repetition_penalty, wanted, _is_factor)
        for name in ("frequency_penalty", "presence_penalty"):
            check_number(name, getattr(self, name), "a number from -2 to 2", lambda x: abs(x) <= 2)
        set_field = object.__setattr__
        set_field(self, "logit_bias", check_logit_bias("logit_bias", self.logit_bias))
        set_field(self, "bad_words", check_bad_words("bad_words", self.bad_words))
        sequences = check_token_sequences("bad_words_ids", self.bad_words_ids)
        set_field(self, "bad_words_ids", sequences)
        if self.allowed_token_ids is not None:
            allowed = check_token_ids("allowed_token_ids", self.allowed_token_ids)
            if not allowed:
                raise RequestError(
                    "allowed_token_ids is empty",
                    hint="allowed_token_ids must have at least one token id, or be None for all",
                )
            set_field(self, "allowed_token_ids", allowed)

    def _check_ends(self) -> None:
        check_integer("max_tokens", self.max_tokens, 1, _MAX_COUNT)
        check_integer("min_tokens", self.min_tokens, 0, _MAX_COUNT)
        check_integer("first_n_token_no_eos", self.first_n_token_no_eos, 0, _MAX_COUNT)
        for name in ("include_stop_str_in_output", "ignore_eos", "skip_special_tokens"):
            check_flag(name, getattr(self, name))
        if self.min_tokens > self.max_tokens:
            raise RequestError(
                f"min_tokens is {self.min_tokens}, above max_tokens {self.max_tokens}",
                hint="lower min_tokens or raise max_tokens",
            )

    def _check_seed(self) -> None:
        for name, value in (("seed", self.seed), ("seq_seed", self.seq_seed)):
            if value is not None:
                check_integer(name, value, 0, _MAX_SEED, also="None")
        if self.seed is None:
            object.__setattr__(self, "seed", self.seq_seed)
        elif self.seq_seed not in (None, self.seed):
            raise RequestError(
                f"seed is {self.seed} and seq_seed is {self.seq_seed}",
                hint="both name the same thing; give one",
            )


def _is_factor(value: float) -> bool:
    return 0.01 <= value <= 100


def _alternatives(value: bool | int | None) -> int | None:
    if value is None or value is False:
        return None
    return 0 if value is True else value
