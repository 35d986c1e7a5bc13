"""How well does the shipped checkpoint predict text it was never trained on, in the engine itself?

Bits per byte by source of ``tests/data/heldout.jsonl``, as its README defines them: every token
behind the beginning-of-sequence token counts, the final end-of-sequence token included; the bytes
are those of the contents. Behind the openings of the stories, along the model's own greedy text:
drafts accepted per round of five, and the expected calibration error of their confidences (ten
equal bins of the confidence; drafts behind a rejected one do not count, since a confidence speaks
of the case that all before it are accepted).
"""

import json
import math
from collections import defaultdict
from pathlib import Path

from deepinfer_core.engine.draft_rounds import DraftRound, draft_rounds
from deepinfer_core.engine.scoring import token_nats
from record import figure, options, write

from deepinfer_core import LLM

HELDOUT = Path(__file__).parent.parent / "tests" / "data" / "heldout.jsonl"
BOUNDS = {"tinystories": 0.82, "story_chat": 0.42, "books+tales": 1.45}
"""Largest bits per byte that each source may have."""
ACCEPTED_BOUND = 1.6
"""Smallest mean number of accepted drafts per round on the model's own stories."""
CALIBRATION_BOUND = 0.03
"""Largest calibration error."""
BINS = 10
ROUNDS = 8
OPENING_WORDS = 8


def read(llm: LLM) -> dict[str, list[tuple[list[int], int]]]:
    """Token ids and content bytes of each document, by source."""
    found = defaultdict(list)
    end = llm.loaded.config.eos_token_id
    for line in HELDOUT.read_text(encoding="utf-8").splitlines():
        document = json.loads(line)
        ids = document["ids"] if "ids" in document else [*llm.encode(document["text"]), end]
        source = document["source"]
        name = "books+tales" if source in ("books", "tales") else source
        found[name].append((ids, document["bytes"]))
    return found


def openings() -> list[str]:
    """The first words of some stories."""
    lines = map(json.loads, HELDOUT.read_text(encoding="utf-8").splitlines())
    stories = [line["text"] for line in lines if line["source"] == "tinystories"]
    return [" ".join(story.split()[:OPENING_WORDS]) for story in stories]


def calibration_error(rounds: list[DraftRound]) -> float:
    """Mean distance between confidence and hit rate, over bins of the confidence."""
    judged = [
        (one.confidences[place], one.drafts[place] == one.wanted[place])
        for one in rounds
        for place in range(min(one.accepted + 1, len(one.drafts)))
    ]
    bins = defaultdict(list)
    for confidence, is_hit in judged:
        bins[min(int(confidence * BINS), BINS - 1)].append(confidence - is_hit)
    return sum(abs(sum(gaps)) for gaps in bins.values()) / len(judged)


def main() -> None:
    """Score, draft and store."""
    parser = options(__doc__)
    parser.add_argument("--model", help="another checkpoint than the installed one")
    args = parser.parse_args()
    figures = []
    with LLM(args.model) as llm:
        for source, documents in read(llm).items():
            nats = token_nats(llm, [ids for ids, _ in documents])
            bits = math.fsum(nats) / math.log(2) / sum(count for _, count in documents)
            figures.append(
                figure(
                    f"heldout.bits_per_byte.{source}", round(bits, 4), "bit/byte",
                    bound=BOUNDS[source], ratio=round(bits / BOUNDS[source], 3),
                    documents=len(documents),
                )
            )  # fmt: skip
        rounds = [
            one
            for text in openings()
            for one in draft_rounds(llm, llm.encode(text), ROUNDS)
            if one.is_whole
        ]
    accepted = sum(one.accepted for one in rounds) / len(rounds)
    figures.append(
        figure(
            "drafts.accepted_per_round", round(accepted, 3), "tokens", bound=ACCEPTED_BOUND,
            ratio=round(accepted / ACCEPTED_BOUND, 3), rounds=len(rounds),
        )
    )  # fmt: skip
    error = calibration_error(rounds)
    figures.append(
        figure(
            "drafts.calibration_error", round(error, 4), "", bound=CALIBRATION_BOUND,
            ratio=round(error / CALIBRATION_BOUND, 3), rounds=len(rounds),
        )
    )  # fmt: skip
    write("heldout.json", figures, is_record=args.record)


if __name__ == "__main__":
    main()
