"""Does speculation by the match rule change any token of thousands of answers?

The same requests run without drafts, then with drafts of two drafters and a random budget a step,
asynchronously and in lockstep. Half of the prompts repeat themselves, so that drafts of
``core.ngram`` are right often; draws, penalties, biases, stops and log-probabilities are mixed.
Tokens, texts, reasons to end and log-probabilities must be equal, bit for bit. ``--rule ratio``
shows how many differ there.
"""

from itertools import product
from typing import Any

from deepinfer_core.engine.outputs import Completion
from deepinfer_core.testing.speculation import matched_prompts, with_random_budgets
from record import figure, options, write

from deepinfer_core import LLM

PROMPTS = 2000
SIZES: dict[str, Any] = {"max_model_len": 512, "max_num_seqs": 32, "max_num_batched_tokens": 512}


def same(one: Completion, other: Completion) -> bool:
    """Whether a caller sees the same."""
    return (one.token_ids, one.text, one.logprobs, one.finish_reason) == (
        other.token_ids, other.text, other.logprobs, other.finish_reason,
    )  # fmt: skip


def main() -> int:
    """Compare; 1 if an answer differs under the match rule."""
    parser = options(__doc__)
    parser.add_argument("--prompts", type=int, default=PROMPTS)
    parser.add_argument("--drafters", nargs="+", default=("core.ngram", "dspark.block"))
    parser.add_argument("--rule", choices=("match", "ratio"), default="match")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    asked = matched_prompts(args.prompts, seed=args.seed, max_tokens=48)
    with LLM(**SIZES) as llm:
        plain = llm.generate(*asked)
    tokens = sum(len(done.token_ids) for done in plain)
    figures = [
        figure("speculation_match.prompts", len(plain), "requests"),
        figure("speculation_match.tokens", tokens, "tokens"),
    ]
    different = 0
    for drafter, asynchronous in product(args.drafters, (True, False)):
        drafts: dict[str, Any] = {
            "components": {"drafter": {"use": drafter}},
            "speculation": {"rule": args.rule},
        }
        with LLM(**SIZES, **drafts, asynchronous=asynchronous) as llm:
            budget = with_random_budgets(llm, args.seed)
            found = llm.generate(*asked)
            llm.engine.check_integrity()
        wrong = sum(not same(got, want) for got, want in zip(found, plain, strict=True))
        different += wrong
        which = f"[drafter={drafter},{'asynchronous' if asynchronous else 'lockstep'}]"
        figures += [
            figure(f"speculation_match.different{which}", wrong, "requests"),
            figure(f"speculation_match.verified{which}", budget.verified, "drafts"),
            figure(f"speculation_match.accepted{which}", budget.accepted, "drafts"),
        ]
    write(f"speculation_{args.rule}.json", figures, is_record=args.record)
    return int(different > 0 and args.rule == "match")


if __name__ == "__main__":
    raise SystemExit(main())
