"""Does a key bind all that the bytes of a block depend on, and nothing else?"""

import hashlib
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.cache.keys import (
    KEY_BYTES,
    ImagePlace,
    KeyChain,
    block_extras,
    block_key,
    namespace,
)
from deepinfer_core.errors import EngineError
from hypothesis import given
from hypothesis import strategies as st

ROOT = namespace(model=b"weights", layout=b"layout", numerics="exact", salt=b"salt")
VECTORS = json.loads(Path(__file__).parents[2].joinpath("data/kv_keys.json").read_text())
TOKEN_IDS = st.integers(0, 2**32 - 1)


def by_hand(*fields: bytes) -> bytes:
    digest = hashlib.sha256()
    for field in fields:
        digest.update(len(field).to_bytes(8, "little"))
        digest.update(field)
    return digest.digest()


def ids_by_hand(*token_ids: int) -> bytes:
    return b"".join(token_id.to_bytes(4, "little") for token_id in token_ids)


def chain_of(token_ids: list[int], size: int = 4, **options: Any) -> list[bytes]:
    chain = KeyChain(ROOT, size, **options)
    chain.extend(token_ids)
    return chain.keys


def test_a_namespace_is_the_digest_of_its_framed_fields() -> None:
    assert by_hand(b"ns1", b"weights", b"layout", b"exact", b"salt") == ROOT
    assert ROOT.hex() == "4a398244feccd0a93437a7e37e7170208975a6754adbfc0f35d68ef1569bcd32"


def test_a_key_is_the_digest_of_its_framed_parent_ids_and_extras() -> None:
    first = block_key(ROOT, [0, 1, 511, 2**32 - 1])
    assert first == by_hand(b"blk1", ROOT, ids_by_hand(0, 1, 511, 2**32 - 1), b"")
    assert first.hex() == "661ec6810064caf4abd51330501c1509e6227e8c6765cab8126be7824e8b2fae"
    second = block_key(first, (7, 7, 7, 7), b"image")
    assert second == by_hand(b"blk1", first, ids_by_hand(7, 7, 7, 7), b"image")
    assert second.hex() == "f63e45d00d0e66a484cc245de3ebc06bf8cfdc9f644950d4b07f366ef54a4485"
    assert len(second) == KEY_BYTES


@pytest.mark.parametrize("field", ["model", "layout", "numerics", "salt"])
def test_every_field_of_a_namespace_keeps_blocks_apart(field: str) -> None:
    fields: dict[str, Any] = {
        "model": b"weights",
        "layout": b"layout",
        "numerics": "exact",
        "salt": b"salt",
    }
    other = fields[field] + ("x" if field == "numerics" else b"x")
    assert namespace(**fields | {field: other}) != namespace(**fields)


def test_a_key_depends_on_its_parent_on_every_id_and_on_the_extras() -> None:
    keys = {
        block_key(ROOT, [1, 2]),
        block_key(bytes(KEY_BYTES), [1, 2]),
        block_key(ROOT, [1, 3]),
        block_key(ROOT, [3, 2]),
        block_key(ROOT, [2, 1]),
        block_key(ROOT, [1]),
        block_key(ROOT, [1, 2], b"x"),
    }
    assert len(keys) == 7


def test_no_field_can_borrow_bytes_from_its_neighbour() -> None:
    one = namespace(model=b"ab", layout=b"c", numerics="d", salt=b"ef")
    assert one != namespace(model=b"a", layout=b"bc", numerics="d", salt=b"ef")
    assert one != namespace(model=b"ab", layout=b"c", numerics="de", salt=b"f")
    assert block_key(ROOT, [1, 2]) != block_key(ROOT, [1], ids_by_hand(2))
    assert block_key(ROOT + ids_by_hand(1), [2]) != block_key(ROOT, [1, 2])


def test_a_crafted_field_cannot_spell_a_length_and_a_further_field() -> None:
    forged = b"a" + (1).to_bytes(8, "little") + b"b"
    assert namespace(model=b"m", layout=b"l", numerics="n", salt=forged) != by_hand(
        b"ns1", b"m", b"l", b"n", b"a", b"b"
    )


def test_a_namespace_is_never_a_key() -> None:
    as_root = namespace(model=ROOT, layout=ids_by_hand(1), numerics="")
    assert as_root != block_key(ROOT, [1])
    assert as_root != by_hand(b"blk1", ROOT, ids_by_hand(1), b"", b"")


@pytest.mark.parametrize("token_id", [0, 1, 2**32 - 2, 2**32 - 1])
def test_ids_up_to_32_bits_have_keys(token_id: int) -> None:
    assert block_key(ROOT, [token_id]) == by_hand(b"blk1", ROOT, ids_by_hand(token_id), b"")


@pytest.mark.parametrize("token_id", [-(2**32), -1, 2**32, 2**64, 1.0, "1", None])
def test_other_ids_are_an_error_that_names_them(token_id: Any) -> None:
    with pytest.raises(EngineError) as caught:
        block_key(ROOT, [5, token_id])
    assert f"token id {token_id!r}" in str(caught.value)


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 0), (3, 0), (4, 1), (5, 1), (8, 2)])
def test_only_complete_blocks_have_keys(tokens: int, blocks: int) -> None:
    assert len(chain_of(list(range(tokens)))) == blocks


def test_a_chain_links_each_block_to_the_one_before_it() -> None:
    first = block_key(ROOT, [9, 8, 7, 6])
    assert chain_of([9, 8, 7, 6, 5, 4, 3, 2, 1]) == [first, block_key(first, [5, 4, 3, 2])]


@given(st.lists(TOKEN_IDS, max_size=40), st.sets(st.integers(0, 40)), st.integers(1, 9))
def test_a_chain_fed_in_pieces_equals_one_fed_at_once(
    token_ids: list[int], ends: set[int], size: int
) -> None:
    chain = KeyChain(ROOT, size)
    for end in [*sorted(ends), len(token_ids), len(token_ids)]:
        if end <= len(token_ids):
            chain.extend(token_ids[:end])
    assert chain.keys == chain_of(token_ids, size)


@given(st.lists(TOKEN_IDS, min_size=1, max_size=24), st.data())
def test_keys_agree_in_front_of_the_first_difference_and_nowhere_behind_it(
    token_ids: list[int], data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(token_ids) - 1))
    changed = [*token_ids]
    changed[place] ^= 1
    pairs = list(zip(chain_of(token_ids), chain_of(changed), strict=True))
    assert [one == other for one, other in pairs] == [
        number < place // 4 for number in range(len(pairs))
    ]


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_extras_of_a_block_set_it_and_all_behind_it_apart(number: int) -> None:
    plain = chain_of(list(range(12)))
    salted = chain_of(list(range(12)), extras={number: b"digest of an image"})
    assert [one == other for one, other in zip(plain, salted, strict=True)] == [
        block < number for block in range(3)
    ]


def test_two_images_behind_equal_placeholders_have_two_keys() -> None:
    assert chain_of([5] * 4, extras={0: b"cat"}) != chain_of([5] * 4, extras={0: b"dog"})


def test_taking_back_tokens_that_have_a_key_is_an_error_that_changes_nothing() -> None:
    chain = KeyChain(ROOT, 4)
    chain.extend(range(9))
    chain.extend(range(8))
    with pytest.raises(EngineError, match="found 2 made before"):
        chain.extend(range(7))
    assert chain.keys == chain_of(list(range(8)))


def test_a_bad_id_leaves_the_keys_of_the_blocks_before_it() -> None:
    chain = KeyChain(ROOT, 4)
    with pytest.raises(EngineError, match="token id -1"):
        chain.extend([0, 1, 2, 3, 4, 5, -1, 7])
    assert chain.keys == chain_of([0, 1, 2, 3])


@pytest.mark.parametrize("size", [-1, 0])
def test_blocks_without_tokens_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="at least 1 token"):
        KeyChain(ROOT, size)


def test_every_process_finds_the_same_keys() -> None:
    code = (
        "from deepinfer_core.cache.keys import KeyChain, namespace\n"
        "chain = KeyChain(namespace(model=b'm', layout=b'l', numerics='n', salt=b's'), 128)\n"
        "chain.extend(range(400))\n"
        "print(*(key.hex() for key in chain.keys))\n"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    here = KeyChain(namespace(model=b"m", layout=b"l", numerics="n", salt=b"s"), 128)
    here.extend(range(400))
    assert [line.decode().split() for line in printed] == [[key.hex() for key in here.keys]]


def test_no_two_blocks_of_one_long_text_of_equal_tokens_share_a_key() -> None:
    keys = chain_of([7] * 400)
    assert all(one != other for one, other in pairwise(keys))
    assert len(set(keys)) == 100


def digest_by_hand(case: dict[str, Any], parent: bytes, number: int, tokens: list[int]) -> bytes:
    """One step of the chain: every position of the block is looked at on its own."""
    size = case["block_tokens"]
    block = range(number * size, number * size + size)
    extras = []
    for image in case["images"]:
        within = [p - image["start"] for p in block if 0 <= p - image["start"] < image["tokens"]]
        if within:
            at = image["start"] + within[0] - block.start
            extras += [b"img1", bytes.fromhex(image["digest"])]
            extras += [place.to_bytes(8, "little") for place in (at, within[0])]
    if str(number) in case["salts"]:
        extras += [b"slt1", bytes.fromhex(case["salts"][str(number)])]
    framed = b"".join(len(one).to_bytes(8, "little") + one for one in extras)
    return by_hand(b"blk1", parent, ids_by_hand(*(tokens[p] for p in block)), framed)


@pytest.mark.parametrize("case", VECTORS, ids=[case["name"] for case in VECTORS])
def test_golden_vectors_hold_for_the_chain_and_for_its_description(case: dict[str, Any]) -> None:
    spec, size = case["tokens"], case["block_tokens"]
    tokens = [spec["first"] + spec["step"] * number for number in range(spec["count"])]
    root = namespace(
        model=bytes.fromhex(case["model"]),
        layout=bytes.fromhex(case["layout"]),
        numerics=case["numerics"],
        salt=bytes.fromhex(case["salt"]),
    )
    images = [
        ImagePlace(
            digest=bytes.fromhex(image["digest"]), start=image["start"], tokens=image["tokens"]
        )
        for image in case["images"]
    ]
    salts = {int(number): bytes.fromhex(salt) for number, salt in case["salts"].items()}
    chain = KeyChain(root, size, extras=block_extras(size, images, salts))
    chain.extend(tokens)
    derived = [
        by_hand(
            b"ns1",
            bytes.fromhex(case["model"]),
            bytes.fromhex(case["layout"]),
            case["numerics"].encode(),
            bytes.fromhex(case["salt"]),
        )
    ]
    for number in range(len(tokens) // size):
        derived.append(digest_by_hand(case, derived[-1], number, tokens))
    assert [key.hex() for key in derived] == [case["namespace"], *case["keys"]]
    assert [root, *chain.keys] == derived


def test_no_two_golden_vectors_share_a_key_but_where_they_share_a_beginning() -> None:
    # Four texts begin with the plain one's first block; all else differs.
    keys = [key for case in VECTORS for key in case["keys"]]
    assert len(keys) - len(set(keys)) == 3


@pytest.mark.parametrize(
    ("start", "tokens", "blocks"),
    [
        (0, 1, {0}),
        (3, 1, {0}),
        (3, 2, {0, 1}),
        (4, 4, {1}),
        (4, 5, {1, 2}),
        (2, 9, {0, 1, 2}),
    ],
)
def test_an_image_is_bound_to_every_block_with_its_placeholders_and_to_no_other(
    start: int, tokens: int, blocks: set[int]
) -> None:
    image = ImagePlace(digest=b"cat", start=start, tokens=tokens)
    assert block_extras(4, [image]).keys() == blocks


def test_extras_tell_images_their_order_and_their_places_apart() -> None:
    cat, dog = (ImagePlace(digest=name, start=0, tokens=2) for name in (b"cat", b"dog"))
    behind = ImagePlace(digest=b"cat", start=2, tokens=2)
    later = ImagePlace(digest=b"cat", start=1, tokens=2)
    dog_behind = ImagePlace(digest=b"dog", start=2, tokens=2)
    texts = ([cat], [dog], [behind], [later], [cat, dog_behind], [dog, behind])
    assert len({block_extras(4, images)[0] for images in texts}) == len(texts)


def test_a_salt_is_no_image_and_an_image_no_salt() -> None:
    image = block_extras(4, [ImagePlace(digest=b"x", start=0, tokens=1)])[0]
    assert image != block_extras(4, salts={0: b"x"})[0]
    forged = b"x" + (8).to_bytes(8, "little") + bytes(8) + (8).to_bytes(8, "little") + bytes(8)
    assert image != block_extras(4, salts={0: forged})[0]


def test_a_text_without_images_and_salts_has_no_extras() -> None:
    assert block_extras(4) == {}
