"""The pool of blocks and slots: nothing lost, nothing handed out twice."""

import pytest
from deepinfer_core.cache.pool import PagePool
from deepinfer_core.errors import EngineError
from hypothesis import given
from hypothesis import strategies as st


def test_the_dummy_is_never_handed_out() -> None:
    pool = PagePool(4)
    assert sorted(pool.take(3)) == [1, 2, 3]
    assert pool.free_count == 0


@pytest.mark.parametrize("count", [0, 1])
def test_a_pool_without_a_usable_page_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="usable block"):
        PagePool(count)


def test_asking_for_more_than_is_free_changes_nothing() -> None:
    pool = PagePool(4)
    pool.take(1)
    with pytest.raises(EngineError, match="3 blocks were asked for, 2 are free"):
        pool.take(3)
    assert pool.free_count == 2


def test_a_released_page_is_reused_after_all_others() -> None:
    pool = PagePool(4)
    [first] = pool.take(1)
    pool.release([first])
    assert pool.take(3)[-1] == first


def test_the_front_of_a_sequence_is_reused_last() -> None:
    pool = PagePool(4)
    pages = pool.take(3)
    pool.release(pages)
    assert pool.take(3) == tuple(reversed(pages))


def test_a_shared_page_is_free_only_after_its_last_user() -> None:
    pool = PagePool(2)
    pages = pool.take(1)
    pool.share(pages)
    pool.release(pages)
    assert pool.free_count == 0
    pool.release(pages)
    assert pool.free_count == 1


@pytest.mark.parametrize("page", [-1, 0, 2, 4])
def test_releasing_what_nobody_holds_is_an_error_that_changes_nothing(page: int) -> None:
    pool = PagePool(4, "state slot")
    held = pool.take(1)
    with pytest.raises(EngineError, match=f"state slot {page} "):
        pool.release([*held, page])
    pool.check_integrity([held])


def test_releasing_a_page_twice_at_once_is_an_error() -> None:
    pool = PagePool(4)
    [page] = pool.take(1)
    with pytest.raises(EngineError, match="fewer than 2 users"):
        pool.release([page, page])


def test_sharing_a_free_page_is_an_error() -> None:
    with pytest.raises(EngineError, match="block 1"):
        PagePool(4).share([1])


def test_integrity_finds_a_page_that_nobody_admits_to_hold() -> None:
    pool = PagePool(4)
    pool.take(1)
    with pytest.raises(EngineError, match=r"blocks \[1\]"):
        pool.check_integrity([])


def test_integrity_finds_a_page_with_two_users_counted_once() -> None:
    pool = PagePool(4)
    pages = pool.take(1)
    with pytest.raises(EngineError, match=r"blocks \[1\]"):
        pool.check_integrity([pages, pages])


@given(st.lists(st.tuples(st.sampled_from(["take", "share", "release"]), st.integers(0, 5))))
def test_books_agree_after_any_sequence_of_calls(calls: list[tuple[str, int]]) -> None:
    pool = PagePool(8)
    holders: list[tuple[int, ...]] = []
    for name, number in calls:
        if name == "take" and number <= pool.free_count:
            holders.append(pool.take(number))
        elif name == "share" and number < len(holders):
            pool.share(holders[number])
            holders.append(holders[number])
        elif name == "release" and number < len(holders):
            pool.release(holders.pop(number))
        pool.check_integrity(holders)
