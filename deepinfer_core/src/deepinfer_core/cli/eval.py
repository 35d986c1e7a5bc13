"""What does the model compute? Logits of a text, the drafter's guesses, and the quality gate.

For comparisons between implementations, numerics, checkpoints and versions.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from deepinfer_core.cli.eval_gate import add_gate_actions
from deepinfer_core.cli.generation import (
    add_model_arguments,
    model_settings,
    open_llm,
    progress_of,
)
from deepinfer_core.cli.output import print_json, print_table
from deepinfer_core.cli.parser import UsageError
from deepinfer_core.cli.prompt_input import Prompt, read_prompt_file, read_token_file

if TYPE_CHECKING:
    from deepinfer_core.engine.draft_rounds import DraftRound
    from deepinfer_core.engine.llm import LLM

__all__ = ["add_arguments", "run"]

_NUMERICS = {
    "production": {"compute": "bfloat16", "activation_quantisation": "true"},
    "semantic": {"compute": "float32", "activation_quantisation": "false"},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    logits = actions.add_parser("logits", help="fp32 logits of every position of a text")
    logits.add_argument(
        "--tokens", type=Path, required=True, metavar="FILE.json", help="list of token ids"
    )
    logits.add_argument(
        "--out", type=Path, required=True, metavar="FILE.npy", help="float32 [tokens, vocabulary]"
    )
    _add_numerics(logits)
    logits.set_defaults(act=_logits)

    draft = actions.add_parser("draft", help="the drafter's tokens and confidences")
    prompt = draft.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT", help="text before the first round")
    prompt.add_argument("--tokens", type=Path, metavar="FILE.json", help="the same as token ids")
    prompt.add_argument(
        "--prompt-file", type=Path, metavar="FILE.jsonl", help="many, as `generate` takes them"
    )
    draft.add_argument("--rounds", type=int, default=1, metavar="N", help="a prompt; default 1")
    draft.add_argument("--json", action="store_true", help="as data")
    _add_numerics(draft)
    draft.set_defaults(act=_draft)
    add_gate_actions(actions)


def run(args: argparse.Namespace) -> int:
    """Run the chosen action."""
    status: int = args.act(args)
    return status


def _add_numerics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--numerics",
        choices=tuple(_NUMERICS),
        help="production: bf16 and rounded activations, the default; semantic: fp32, no rounding",
    )
    parser.add_argument(
        "--cache-quantisation", choices=("on", "off"), help="keep caches in quantised form, or not"
    )
    add_model_arguments(parser)


def _open(args: argparse.Namespace) -> LLM:
    """Load the model; what was asked for by name wins over the settings."""
    chosen = dict(_NUMERICS.get(args.numerics, {}))
    if args.numerics == "semantic":
        chosen["cache_quantisation"] = "false"
    elif args.numerics == "production":
        chosen["cache_quantisation"] = "true"
    if args.cache_quantisation is not None:
        chosen["cache_quantisation"] = "true" if args.cache_quantisation == "on" else "false"
    named = [f"model.numerics.{name}={value}" for name, value in chosen.items()]
    args.overrides = [*args.overrides, *named]
    loaded = model_settings(args)
    return open_llm(loaded, progress_of(loaded))


def _logits(args: argparse.Namespace) -> int:
    import numpy as np

    from deepinfer_core.engine.scoring import logits

    ids = read_token_file(args.tokens)
    if not args.out.resolve().parent.is_dir():
        raise UsageError(f"{args.out} is in a folder that does not exist", hint="create it first")
    if args.out.is_dir():
        raise UsageError(f"{args.out} is a folder", hint="name a file")
    with _open(args) as llm:
        found = logits(llm, ids)
    # Through a handle, because numpy appends .npy to a bare name of another ending.
    with args.out.open("wb") as file:
        np.save(file, found)
    return 0


def _draft(args: argparse.Namespace) -> int:
    from deepinfer_core.engine.draft_rounds import draft_rounds

    if args.rounds < 1:
        raise UsageError(f"--rounds {args.rounds}", hint="give 1 or more")
    prompts = _prompts(args)
    with _open(args) as llm:
        ids = [llm.encode(each) if isinstance(each, str) else each for each in prompts]
        found = [item for each in ids for item in draft_rounds(llm, each, args.rounds)]
        if args.json:
            print_json(_as_data(found))
        else:
            _print_rounds(llm, found)
    return 0


def _prompts(args: argparse.Namespace) -> list[Prompt]:
    if args.prompt_file is not None:
        return read_prompt_file(args.prompt_file)
    return [args.prompt if args.tokens is None else read_token_file(args.tokens)]


def _as_data(found: list[DraftRound]) -> dict[str, object]:
    from deepinfer_core.engine.draft_rounds import draft_shares

    shares = draft_shares(found)
    return {
        "rounds": [asdict(item) for item in found],
        "accepted_per_round": None if shares is None else shares.accepted_per_round,
        "whole_rounds": 0 if shares is None else shares.rounds,
        "survived": [] if shares is None else shares.survived,
        "expected": [] if shares is None else shares.expected,
    }


def _print_rounds(llm: LLM, found: list[DraftRound]) -> None:
    from deepinfer_core.engine.draft_rounds import draft_shares

    def text(ids: tuple[int, ...]) -> str:
        tokenizer = llm.engine.tokenizer
        return " ".join(map(str, ids)) if tokenizer is None else repr(tokenizer.decode(ids))

    rows = [("position", "accepted", "confidences", "drafts", "the model's own")]
    for item in found:
        sure = " ".join(f"{value:.2f}" for value in item.confidences)
        rows.append(
            (str(item.position), str(item.accepted), sure, text(item.drafts), text(item.wanted))
        )
    print_table(rows)
    shares = draft_shares(found)
    if shares is not None:
        print(f"\naccepted per round: {shares.accepted_per_round:.2f}")
        print("of each draft:      " + " ".join(f"{share:.2f}" for share in shares.survived))
        print("as expected:        " + " ".join(f"{share:.2f}" for share in shares.expected))
