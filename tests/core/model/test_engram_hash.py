"""Do primes, multipliers and rows of the Engram hash equal the published ones?"""

from functools import cache

import pytest
import torch
from deepinfer_core.errors import ConfigError
from deepinfer_core.interfaces.transform import EngramHash
from deepinfer_core.model.engram_hash import hash_constants, hash_multipliers
from deepinfer_core.model.engram_primes import hash_primes

# Published constants and rows of DeepSeek-V4.1-Flash, and those of the tiny config.
FULL_PRIMES = {
    1: [
        *(16000057, 16000079, 16000081, 16000097, 16000121, 16000129, 16000133, 16000183),
        *(16000189, 16000207, 16000211, 16000253, 16000277, 16000289, 16000307, 16000321),
        *(16000339, 16000381, 16000393, 16000399, 16000403, 16000409, 16000447, 16000463),
    ],
    14: [
        *(16000477, 16000487, 16000499, 16000507, 16000511, 16000573, 16000609, 16000627),
        *(16000667, 16000669, 16000693, 16000697, 16000711, 16000729, 16000759, 16000769),
        *(16000781, 16000799, 16000813, 16000819, 16000841, 16000877, 16000879, 16000889),
    ],
}
FULL_MULTIPLIERS = {
    1: [76632096046245, 4839876093313, 35959672319349, 73987337458391],
    14: [67716810739261, 51510806800915, 30921347202721, 82619226485591],
}
FULL_ROWS = [  # layer, compressed ids, columns 0, 1, 8, 9, 16, 17 and 23
    (
        1,
        (40, 30, 20, 10),
        [1326936, 22120929, 142088989, 151706440, 270969918, 287524568, 378628807],
    ),
    (1, (10, 2, 2, 2), [9400104, 24924096, 128026094, 156221192, 261350200, 277988921, 382122658]),
    (
        1,
        (99091, 99090, 12345, 67890),
        [14791388, 31792932, 143126824, 145699808, 260221916, 281679096, 382690871],
    ),
    (
        14,
        (40, 30, 20, 10),
        [5403109, 26519290, 136663117, 159466275, 258079010, 283475728, 378588994],
    ),
    (
        14,
        (10, 2, 2, 2),
        [11315085, 19412660, 135395884, 144699923, 269973942, 285486044, 379075217],
    ),
    (
        14,
        (99091, 99090, 12345, 67890),
        [3381373, 16523618, 130304229, 155137826, 264892231, 274131062, 372251832],
    ),
]
TINY_MULTIPLIERS = {
    1: [1898406915353657, 119898250459655, 890828962367241, 1832888310856755],
    4: [2037832396339919, 124801221787463, 1824617026132519, 469568820055167],
}


@cache
def _full() -> dict[int, EngramHash]:
    return hash_constants(
        layer_ids=(1, 14),
        table_rows=(384006168, 384016682),
        table_size=16_000_000,
        heads=8,
        ngram_size=4,
        compressed_vocab_size=99092,
    )


@cache
def _tiny() -> dict[int, EngramHash]:
    return hash_constants(
        layer_ids=(1, 4),
        table_rows=(1618, 1824),
        table_size=256,
        heads=2,
        ngram_size=4,
        compressed_vocab_size=4000,
    )


def _rows(spec: EngramHash, ids: tuple[int, ...]) -> list[int]:
    """Table rows in Python's unbounded integers: a product that left int64 would show."""
    rows = []
    for prime, offset, order in zip(
        spec.prime_C.tolist(), spec.offset_C.tolist(), spec.order_C.tolist(), strict=True
    ):
        mixed = 0
        for token, multiplier in zip(ids[:order], spec.multiplier_N.tolist(), strict=False):
            mixed ^= token * multiplier
        rows.append(mixed % prime + offset)
    return rows


@pytest.mark.parametrize("layer", [1, 14])
def test_the_published_primes_are_found(layer: int) -> None:
    assert _full()[layer].prime_C.tolist() == FULL_PRIMES[layer]


@pytest.mark.parametrize("layer", [1, 14])
def test_the_published_multipliers_are_drawn(layer: int) -> None:
    assert _full()[layer].multiplier_N.tolist() == FULL_MULTIPLIERS[layer]


@pytest.mark.parametrize(("layer", "ids", "expected"), FULL_ROWS)
def test_the_published_rows_are_hashed(
    layer: int, ids: tuple[int, ...], expected: list[int]
) -> None:
    rows = _rows(_full()[layer], ids)
    assert [rows[column] for column in (0, 1, 8, 9, 16, 17, 23)] == expected


def test_the_tiny_configs_constants_are_found() -> None:
    tiny = _tiny()
    assert tiny[1].prime_C.tolist() == [257, 263, 269, 271, 277, 281]
    assert tiny[4].prime_C.tolist() == [283, 293, 307, 311, 313, 317]
    assert {layer: spec.multiplier_N.tolist() for layer, spec in tiny.items()} == TINY_MULTIPLIERS


def test_the_tiny_configs_rows_are_hashed() -> None:
    ids = [(3 + (31 * t * t + 17 * t) % 3990) % 4000 for t in range(96)]
    assert _rows(_tiny()[1], (ids[0], 2, 2, 2)) == [232, 511, 624, 836, 1079, 1451]
    last = (ids[95], ids[94], ids[93], ids[92])
    assert _rows(_tiny()[1], last) == [252, 482, 709, 867, 1160, 1378]
    assert _rows(_tiny()[4], last) == [71, 433, 699, 1035, 1341, 1549]


def test_columns_run_over_orders_then_heads() -> None:
    assert _full()[1].order_C.tolist() == [2] * 8 + [3] * 8 + [4] * 8


def test_sub_tables_follow_each_other_without_gaps() -> None:
    spec = _full()[14]
    ends = (spec.offset_C + spec.prime_C).tolist()
    assert spec.offset_C.tolist() == [0, *ends[:-1]]
    assert ends[-1] == 384016682


def test_all_constants_are_host_int64() -> None:
    spec = _tiny()[1]
    tensors = (spec.multiplier_N, spec.prime_C, spec.offset_C, spec.order_C)
    assert [(t.dtype, t.device.type) for t in tensors] == [(torch.int64, "cpu")] * 4


def test_no_product_of_an_id_and_a_multiplier_leaves_int64() -> None:
    for compressed in (1, 2, 4000, 99092):
        multipliers = hash_multipliers(1, 64, compressed).tolist()
        assert max(multipliers) * (compressed - 1) < 2**63


def test_a_vocabulary_that_leaves_no_room_still_has_odd_multipliers() -> None:
    assert hash_multipliers(1, 4, 2**62).tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("smallest", [0, 1, 2])
def test_the_search_for_primes_starts_at_two(smallest: int) -> None:
    assert hash_primes(layers=1, orders=1, heads=5, smallest=smallest) == [[2, 3, 5, 7, 11]]


def test_a_prime_start_is_taken_itself_and_squares_are_not() -> None:
    assert hash_primes(layers=1, orders=1, heads=1, smallest=23) == [[23]]
    assert hash_primes(layers=1, orders=1, heads=1, smallest=25) == [[29]]


def test_no_layers_have_no_hashes() -> None:
    assert (
        hash_constants(
            layer_ids=(),
            table_rows=(),
            table_size=256,
            heads=2,
            ngram_size=4,
            compressed_vocab_size=4000,
        )
        == {}
    )


def _with(layer_ids: tuple[int, ...], table_rows: tuple[int, ...]) -> None:
    hash_constants(
        layer_ids=layer_ids,
        table_rows=table_rows,
        table_size=256,
        heads=2,
        ngram_size=4,
        compressed_vocab_size=4000,
    )


@pytest.mark.parametrize("rows", [1617, 1619])
def test_a_table_of_another_size_is_refused(rows: int) -> None:
    with pytest.raises(ConfigError, match=f"{rows} rows in layer 1, found sub-tables of 1618"):
        _with((1,), (rows,))


def test_lists_of_unequal_length_are_refused() -> None:
    with pytest.raises(ConfigError, match="engram_num_embeddings needs one entry"):
        _with((1, 4), (1618,))


def test_a_repeated_layer_is_refused() -> None:
    with pytest.raises(ConfigError, match="engram_num_embeddings needs one entry"):
        _with((1, 1), (1618, 1824))
