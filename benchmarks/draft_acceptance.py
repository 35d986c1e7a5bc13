"""How often are drafts accepted, by kind of text and by place, and how true are the confidences?

Rounds run along the model's own greedy text, behind openings that it was never trained on: the
first words of held-out stories, held-out conversations up to the answer, and the first lines of
functions of Python's ``textwrap`` (code is nothing this model knows; it shows what happens then).

Survival is the probability that a draft and all before it are accepted: as the confidences have it,
and as it came out. Its calibration error is taken as they come from the network (temperature 1),
with the checkpoint's own temperatures, and with temperatures fitted by ``deepinfer calibrate`` to
the other half of all openings; mean over the drafts of a block, 15 bins. Even exact estimates have
an error in a finite sample, which is given beside.

The confidences of the shipped checkpoint speak of greedy text. So the same is done for answers that
are drawn at temperature 1, by either rule of acceptance, as an engine records them.
"""

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from deepinfer_core.engine.draft_rounds import DraftRound, draft_rounds, draft_shares
from deepinfer_dspark.fitting import BlockRecords, calibration_error, fit, survival
from deepinfer_dspark.recording import read_records
from record import figure, options, write

from deepinfer_core import LLM, SamplingParams

HELDOUT = Path(__file__).parent.parent / "tests" / "data" / "heldout.jsonl"
KINDS = ("stories", "chat", "code")
OPENING_WORDS = 8
CODE_LINES = 6
ROUNDS = 25
DRAWS = 20
Halves = tuple[list[DraftRound], list[DraftRound]]


def openings(llm: LLM) -> Iterator[tuple[str, list[int]]]:
    """Kind and token ids of each opening."""
    assert llm.engine.tokenizer is not None
    answer = llm.engine.tokenizer.control_id("<｜Assistant｜>")
    for line in map(json.loads, HELDOUT.read_text(encoding="utf-8").splitlines()):
        if line["source"] == "tinystories":
            yield "stories", llm.encode(" ".join(line["text"].split()[:OPENING_WORDS]))
        elif line["source"] == "story_chat":
            ids = line["ids"]
            yield "chat", ids[: len(ids) - ids[::-1].index(answer)]
    source = inspect.getsource(textwrap)
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            yield "code", llm.encode("\n".join(lines[node.lineno - 1 :][:CODE_LINES]) + "\n")


def records(rounds: list[DraftRound], temperatures: tuple[float, ...]) -> BlockRecords:
    """The rounds as a recorder would have written them."""
    confidence_Bn = torch.tensor([one.confidences for one in rounds], dtype=torch.float64)
    accepted = [one.accepted for one in rounds]
    return BlockRecords(
        # Single precision ends at 1 - 6e-8, a logit of 16.6.
        logit_Bn=confidence_Bn.clamp(6e-8, 1 - 6e-8).logit() * torch.tensor(temperatures),
        verified_B=torch.full((len(rounds),), len(temperatures)),
        accepted_B=torch.tensor(accepted),
    )


def mean_error(survival_Bn: torch.Tensor, survived_Bn: torch.Tensor) -> float:
    """Calibration error, mean over the drafts of a block."""
    columns = zip(survival_Bn.unbind(1), survived_Bn.unbind(1), strict=True)
    return sum(calibration_error(*column) for column in columns) / survival_Bn.shape[1]


def errors(
    both: Sequence[BlockRecords], own: tuple[float, ...], fitted: tuple[tuple[float, ...], ...]
) -> dict[str, float]:
    """Calibration errors of both halves together, the fitted temperatures being of the other."""
    accepted_B = torch.cat([half.accepted_B for half in both])
    survived_Bn = (accepted_B[:, None] > torch.arange(len(own))).double()

    def estimate(one: tuple[float, ...], other: tuple[float, ...]) -> torch.Tensor:
        pairs = zip(both, (one, other), strict=True)
        return torch.cat([survival(half.logit_Bn, use) for half, use in pairs])

    flat = (1.0,) * len(own)
    found = {
        "at_temperature_1": mean_error(estimate(flat, flat), survived_Bn),
        "with_checkpoints_temperatures": mean_error(estimate(own, own), survived_Bn),
        "fitted_on_other_half": mean_error(estimate(fitted[1], fitted[0]), survived_Bn),
        "of_chance_alone": chance_error(estimate(fitted[1], fitted[0])),
    }
    return {name: round(error, 4) for name, error in found.items()}


def chance_error(survival_Bn: torch.Tensor) -> float:
    """What is left if survival is exactly as estimated: outcomes drawn from the estimates."""
    generator = torch.Generator().manual_seed(1)
    draws = torch.rand((DRAWS, *survival_Bn.shape), generator=generator, dtype=torch.float64)
    return sum(mean_error(survival_Bn, (d < survival_Bn).double()) for d in draws) / DRAWS


def sampled(rule: str, tokens: int) -> dict[str, object]:
    """Both halves of the openings answered by drawing, and what that says about confidences."""
    both = []
    for half in (0, 1):
        with TemporaryDirectory() as folder:
            file = Path(folder) / "record.jsonl"
            drafter = {"use": "dspark.block", "options": {"record": str(file)}}
            with LLM(threads=1, components={"drafter": drafter}, speculation={"rule": rule}) as llm:
                own = llm.loaded.config.text_config.confidence_temperatures
                ids = [each for _, each in openings(llm)][half::2]
                params = SamplingParams(temperature=1, seed=1, max_tokens=tokens)
                llm.generate(prompt_token_ids=ids, sampling_params=params)
            found = read_records(file)[1]
        whole_B = found.verified_B == len(own)
        both.append(
            BlockRecords(
                logit_Bn=found.logit_Bn[whole_B],
                verified_B=found.verified_B[whole_B],
                accepted_B=found.accepted_B[whole_B],
            )
        )
    fitted = tuple(fit(each, own).temperatures for each in both)
    accepted_B = torch.cat([each.accepted_B for each in both])
    return figure(
        f"drafts.accepted_per_round.sampled_{rule}", round(float(accepted_B.double().mean()), 3),
        "tokens", rounds=len(accepted_B),
        survived=[round(float((accepted_B > n).double().mean()), 4) for n in range(len(own))],
        calibration_error=errors(both, own, fitted),
        fitted=[[round(t, 3) for t in each] for each in fitted],
    )  # fmt: skip


def main() -> None:
    """Draft, fit and store."""
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="behind each opening")
    parser.add_argument("--sampled-tokens", type=int, default=48, help="of each drawn answer")
    args = parser.parse_args()
    halves: dict[str, Halves] = {k: ([], []) for k in KINDS}
    count = dict.fromkeys(KINDS, 0)
    with LLM() as llm:
        own = llm.loaded.config.text_config.confidence_temperatures
        for kind, ids in openings(llm):
            whole = [one for one in draft_rounds(llm, ids, args.rounds) if one.is_whole]
            halves[kind][count[kind] % 2].extend(whole)
            count[kind] += 1
    fits = [fit(records([r for k in KINDS for r in halves[k][i]], own), own) for i in (0, 1)]
    fitted = tuple(each.temperatures for each in fits)
    figures = []
    for kind in KINDS:
        shares = draft_shares([*halves[kind][0], *halves[kind][1]])
        assert shares is not None
        both = [records(half, own) for half in halves[kind]]
        figures.append(
            figure(
                f"drafts.accepted_per_round.{kind}", round(shares.accepted_per_round, 3), "tokens",
                openings=count[kind], rounds=shares.rounds,
                survived=[round(x, 4) for x in shares.survived],
                expected=[round(x, 4) for x in shares.expected],
                calibration_error=errors(both, own, fitted),
            )
        )  # fmt: skip
    figures.append(
        figure(
            "drafts.fitted_temperatures", len(own), "drafts", checkpoint=own,
            halves=[[round(t, 3) for t in each] for each in fitted],
        )
    )  # fmt: skip
    figures += [sampled(rule, args.sampled_tokens) for rule in ("match", "ratio")]
    write("draft_acceptance.json", figures, is_record=args.record)


if __name__ == "__main__":
    main()
