"""Which kind of step does a data-parallel group run next?

Members of a group own their requests, caches and schedule, but the rows of all of them meet in the
expert layers. So in every step all members must run the same kind of forward pass, those without
rows a placeholder row, and all or none. Before each step

1. every member makes a ballot of its snapshot: what it could run;
2. the members exchange their votes, a few bits each, in one collective;
3. every member computes ``agree`` from all votes. It is pure, so all come to the same agreement;
4. every member runs what its ballot has for the agreed kind, a placeholder if that has no rows.
   After ``idle`` nobody runs a pass; a member only looks at results that are still to come. The
   group votes again once they are there, or when any member gets a request.

One exchange is enough: decisions are pure, so a member knows before it votes what it will really
run. Nobody votes for a step in which it would then have no rows.

Waits, in steps of the group, of a member that has rows to run:

* Steps may be mixed: none. Every member runs what it would run alone.
* Otherwise a member with decode rows waits for at most one prefill step. One with chunks waits for
  at most ``patience_steps`` decode steps, and for at most one if every member that has any work
  has chunks. The count starts with the first decode step that keeps a chunk waiting; an idle group
  counts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from deepinfer_core.schedule.policy import decide, options
from deepinfer_core.schedule.snapshot import Decision, Snapshot, StepKind

__all__ = ["Agreement", "Ballot", "Vote", "agree", "ballot_of"]


class Vote(NamedTuple):
    """What a member tells the others.

    Attributes:
        has_chunks: it would have rows in a prefill step.
        has_decodes: it would have rows in a decode step.
    """

    has_chunks: bool
    has_decodes: bool


class Ballot(NamedTuple):
    """What a member could run next.

    Attributes:
        vote: what it tells the others.
        prefill: its decision if the group agrees on ``prefill``.
        decode: its decision if the group agrees on anything else. If steps may be mixed, the two
            are one.
    """

    vote: Vote
    prefill: Decision
    decode: Decision

    def decision(self, kind: StepKind) -> Decision:
        """The member's part of a step of the agreed kind; without shares it runs a placeholder."""
        return self.prefill if kind == "prefill" else self.decode


class Agreement(NamedTuple):
    """What a group agreed on; the default is that of a group that has not run yet.

    Attributes:
        kind: of the next step. ``idle``: nobody has work, and nobody runs anything.
        waited_steps: decode steps since the last prefill step that kept a chunk waiting, this one
            included.
    """

    kind: StepKind = "idle"
    waited_steps: int = 0


def ballot_of(snapshot: Snapshot) -> Ballot:
    """What a member could run next; ``snapshot.last_kind`` is not looked at."""
    if snapshot.limits.mixes:
        decision = decide(snapshot)
        vote = Vote(decision.kind in ("prefill", "mixed"), decision.kind in ("decode", "mixed"))
        return Ballot(vote, decision, decision)
    prefill, decode = options(snapshot)
    return Ballot(Vote(bool(prefill.shares), bool(decode.shares)), prefill, decode)


def agree(
    votes: Sequence[Vote], before: Agreement, *, mixes: bool, patience_steps: int
) -> Agreement:
    """The kind of the next step, the same for every member.

    Args:
        votes: of all members, those without work included.
        before: the agreement on the last step.
        mixes: chunks and decode rows may share a step, as in the limits of every member.
        patience_steps: decode steps for which a chunk waits at most while other members have none;
            at least 1. More lets decoding members run on, fewer starts prompts sooner.

    Raises:
        ValueError: ``patience_steps`` is below 1, or there are no votes.
    """
    if patience_steps < 1 or not votes:
        raise ValueError(
            f"a group needs a member and a patience of a step or more, found {len(votes)} votes "
            f"and {patience_steps} steps"
        )
    has_chunks = any(vote.has_chunks for vote in votes)
    has_decodes = any(vote.has_decodes for vote in votes)
    if not (has_chunks and has_decodes):
        return Agreement("prefill" if has_chunks else "decode" if has_decodes else "idle")
    if mixes:
        return Agreement("mixed")
    all_have_chunks = all(vote.has_chunks or not vote.has_decodes for vote in votes)
    is_time = all_have_chunks or before.waited_steps >= patience_steps
    if is_time and before.kind != "prefill":
        return Agreement("prefill")
    return Agreement("decode", before.waited_steps + 1)
