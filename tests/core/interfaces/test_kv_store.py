"""Are descriptions of groups and blocks refused where no store could keep them?"""

from dataclasses import replace
from typing import Any

import pytest
from deepinfer_core.interfaces.kv_store import BlockGroup, StoreItem, check_item

GROUP = BlockGroup(
    name="blocks",
    number_format="mxfp4",
    layout=bytes(16),
    block_tokens=128,
    block_bytes=100,
    reuse="leading",
    replay_tokens=0,
    retention="agent",
)
ITEM = StoreItem(key=bytes(32), data=bytes(100), namespace=bytes(32), depth=0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "Blocks"),
        ("name", "a" * 17),
        ("name", "a-b"),
        ("name", "blöcke"),
        ("layout", bytes(15)),
        ("layout", bytes(17)),
        ("block_tokens", 0),
        ("block_bytes", 0),
        ("reuse", "any"),
        ("replay_tokens", -1),
        ("retention", ""),
        ("retention", "a" * 17),
    ],
)
def test_a_group_that_no_record_can_name_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        replace(GROUP, **{field: value})


@pytest.mark.parametrize("word", ["a", "a1_b", "a" * 16])
def test_words_of_up_to_16_characters_name_groups_and_classes(word: str) -> None:
    assert replace(GROUP, name=word, retention=word).name == word


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("key", bytes(31)),
        ("key", bytes(33)),
        ("namespace", bytes(31)),
        ("data", bytes(99)),
        ("data", bytes(101)),
        ("depth", -1),
        ("depth", 2**32),
        ("retention", "no class"),
    ],
)
def test_an_item_that_is_no_block_of_the_group_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match="block" if field == "data" else field):
        check_item(GROUP, replace(ITEM, **{field: value}))


@pytest.mark.parametrize("data", [bytearray(100), memoryview(bytes(100)), b"x" * 100])
def test_data_may_be_of_any_kind_of_bytes(data: Any) -> None:
    check_item(GROUP, replace(ITEM, data=data, retention="chat"))
