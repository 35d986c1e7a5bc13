"""Is the copy that was published first the next one to be handed out?"""

from deepinfer_core.cache.copies import BlockCopies


def test_copies_of_a_key_are_taken_in_the_order_in_which_they_were_added() -> None:
    copies = BlockCopies()
    for block_id in (5, 3, 4):
        copies.add(b"a", block_id)
    assert [copies.take_first(b"a") for _ in range(4)] == [5, 3, 4, None]


def test_a_removed_copy_is_not_taken_and_those_of_other_keys_stay() -> None:
    copies = BlockCopies()
    for key, block_id in ((b"a", 1), (b"b", 2), (b"a", 3)):
        copies.add(key, block_id)
    copies.remove(b"a", 1)
    assert copies.keys() == {3: b"a", 2: b"b"}
    assert copies.take_first(b"a") == 3
    assert copies.keys() == {2: b"b"}


def test_a_key_has_copies_until_the_last_one_is_gone() -> None:
    copies = BlockCopies()
    assert b"a" not in copies
    copies.add(b"a", 1)
    copies.add(b"a", 2)
    copies.remove(b"a", 1)
    assert b"a" in copies
    copies.take_first(b"a")
    assert b"a" not in copies


def test_clearing_forgets_the_copies_of_all_keys() -> None:
    copies = BlockCopies()
    copies.add(b"a", 1)
    copies.add(b"b", 2)
    copies.clear()
    assert b"a" not in copies
    assert copies.keys() == {}
