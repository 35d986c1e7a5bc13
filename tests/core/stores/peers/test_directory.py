"""Does everybody find the same registrars, and do these forget in time?"""

from collections import Counter

from deepinfer_core.stores.peers.directory import REGISTRARS, Directory, registrars

MEMBERS = [f"10.0.0.{number}:7000" for number in range(10)]
KEYS = [number.to_bytes(32, "little") for number in range(2000)]


def test_registrars_do_not_depend_on_the_order_of_members() -> None:
    for key in KEYS[:50]:
        assert registrars(MEMBERS, key) == registrars(MEMBERS[::-1], key)


def test_every_member_is_registrar_of_its_share() -> None:
    share = Counter(name for key in KEYS for name in registrars(MEMBERS, key))
    mean = len(KEYS) * REGISTRARS / len(MEMBERS)
    # A binomial with 2000 draws of 0.2 has a deviation of 18; six of them.
    assert all(abs(share[name] - mean) < 6 * 18 for name in MEMBERS)


def test_a_member_that_leaves_moves_its_own_keys_only() -> None:
    for key in KEYS[:200]:
        before, after = registrars(MEMBERS, key), registrars(MEMBERS[1:], key)
        assert [name for name in before if name != MEMBERS[0]] == [
            name for name in after if name in before
        ]


def test_a_lone_member_is_its_own_registrar() -> None:
    assert registrars(MEMBERS[:1], KEYS[0]) == MEMBERS[:1]


def test_owners_are_known_until_their_time_has_passed() -> None:
    directory = Directory(10)
    directory.announce("blocks", KEYS[:2], "a", 10.0)
    directory.announce("blocks", KEYS[:1], "b", 20.0)
    assert directory.locate("blocks", KEYS[:3], 9.0) == [["b", "a"], ["a"], []]
    assert directory.locate("state", KEYS[:1], 9.0) == [[]]
    assert directory.locate("blocks", KEYS[:2], 10.0) == [["b"], []]
    directory.forget(10.0)
    assert len(directory) == 1


def test_a_withdrawal_is_of_one_owner_and_group() -> None:
    directory = Directory(10)
    for owner in "ab":
        directory.announce("blocks", KEYS[:1], owner, 10.0)
    directory.withdraw("state", KEYS[:1], "a")
    directory.withdraw("blocks", KEYS[:1], "a")
    assert directory.locate("blocks", KEYS[:1], 0.0) == [["b"]]
    directory.withdraw("blocks", KEYS[:1], "b")
    assert len(directory) == 0


def test_what_was_named_longest_ago_makes_room() -> None:
    directory = Directory(2)
    for key in KEYS[:2]:
        directory.announce("blocks", [key], "a", 10.0)
    directory.announce("blocks", KEYS[:1], "a", 11.0)
    directory.announce("blocks", KEYS[2:3], "a", 10.0)
    assert directory.locate("blocks", KEYS[:3], 0.0) == [["a"], [], ["a"]]
