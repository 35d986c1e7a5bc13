"""Is what other machines had told apart from what a store of this one had?"""

from dataclasses import replace

import pytest
from deepinfer_core.testing.cached_prefix import CachedPrefix
from deepinfer_core.testing.faulty_store import FaultyStore


class Elsewhere(FaultyStore):
    """A store that says of blocks of some groups that they came from another machine."""

    remote_groups: tuple[str, ...] = ()

    def load(self, group, keys, destinations, *, deadline_s):
        outcomes = super().load(group, keys, destinations, deadline_s=deadline_s)
        is_remote = group in self.remote_groups
        return [replace(one, is_remote=is_remote and one.status == "hit") for one in outcomes]


def filled(make_stored, text, *remote_groups: str) -> Elsewhere:
    first = make_stored()
    first.ask(text[:18])
    store = Elsewhere(first.traffic.store)
    store.remote_groups = remote_groups
    return store


@pytest.mark.parametrize("remote", [(), ("blocks",), ("state",), ("blocks", "state")])
def test_blocks_and_the_state_are_told_apart(make_stored, text, remote) -> None:
    stored = make_stored(filled(make_stored, text, *remote))
    usage = stored.ask(text[:18]).usage
    assert (usage.stored_tokens, usage.replayed_tokens) == (16, 0)
    assert usage.peer_tokens == (16 if "blocks" in remote else 0)
    assert usage.has_peer_state == ("state" in remote)
    again = stored.ask(text[:18]).usage
    assert (again.cached_tokens, again.peer_tokens, again.has_peer_state) == (16, 0, False)


def test_a_state_of_a_block_in_memory_may_come_from_elsewhere(make_stored, text) -> None:
    stored = make_stored(filled(make_stored, text, "state"))
    stored.ask(text[:18])
    CachedPrefix(stored.engine.batch, text[:18]).drop_snapshots()
    usage = stored.ask(text[:18]).usage
    assert (usage.cached_tokens, usage.stored_tokens, usage.has_peer_state) == (16, 0, True)


def test_a_state_that_does_not_lie_at_the_end_is_none_that_was_resumed_from(
    make_stored, text
) -> None:
    """The prefix goes on behind it, so rows are fed again."""
    store = filled(make_stored, text, "state")
    last = make_stored().keys(text[:16])[-1]
    store.inner.discard("state", [last], deadline_s=1e18)
    usage = make_stored(store).ask(text[:18]).usage
    assert usage.replayed_tokens > 0
    assert not usage.has_peer_state


def test_series_of_the_engine_show_it(make_stored, text) -> None:
    stored = make_stored(filled(make_stored, text, "blocks", "state"))
    stored.ask(text[:18], retention="chat")
    board = stored.engine.instruments.board
    shown = {one.labels: one.value for one in board.read() if one.value}
    assert shown["chat", "peer"] == 16
    assert shown["chat", "computed"] == 2
    assert shown["peer",] == 1


def test_only_what_was_fetched_behind_memory_counts(make_stored, text) -> None:
    stored = make_stored(filled(make_stored, text, "blocks", "state"))
    stored.ask(text[:9])
    usage = stored.ask(text[:18]).usage
    assert (usage.cached_tokens, usage.stored_tokens, usage.peer_tokens) == (16, 8, 8)
    assert usage.has_peer_state
