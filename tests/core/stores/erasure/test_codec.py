"""Do any k pieces give the block, and do two libraries and our tables compute the same ones?"""

from itertools import combinations

import numpy as np
import pytest
from deepinfer_core.errors import ConfigError
from deepinfer_core.stores.erasure import isal
from deepinfer_core.stores.erasure.codec import Codec, NumpyCodec
from deepinfer_core.stores.erasure.field import PRODUCTS, generator_matrix, inverse, recovery
from deepinfer_core.stores.erasure.isal import IsalCodec, library_path

needs_isal = pytest.mark.skipif(
    library_path() is None, reason='needs ISA-L: pip install "deepinfer-core[erasure]"'
)
CODECS = [NumpyCodec, pytest.param(IsalCodec, marks=needs_isal)]
ALL_66 = list(combinations(range(12), 10))
PIECE_BYTES = 133  # odd, and longer than any vector register


def drawn(name: str, *shape: int) -> np.ndarray:
    seed = int.from_bytes(name.encode()[-8:], "big")
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def encoded(codec: Codec, data_kf: np.ndarray) -> np.ndarray:
    pieces = np.zeros((codec.data + codec.parity, data_kf.shape[1]), np.uint8)
    pieces[: codec.data] = data_kf
    codec.encode(pieces)
    return pieces


def by_bits(one: int, other: int) -> int:
    """The product by long multiplication and division."""
    total = 0
    for bit in range(8):
        if other >> bit & 1:
            total ^= one << bit
    for bit in range(14, 7, -1):
        if total >> bit & 1:
            total ^= 0x11D << (bit - 8)
    return total


def test_products_are_those_of_polynomials() -> None:
    assert [[by_bits(one, other) for other in range(256)] for one in range(256)] == (
        PRODUCTS.tolist()
    )


@pytest.mark.parametrize(("data", "parity"), [(1, 1), (2, 1), (4, 3), (10, 2), (6, 4)])
def test_any_k_rows_of_the_matrix_have_an_inverse(data: int, parity: int) -> None:
    matrix = generator_matrix(data, parity)
    for rows in combinations(range(data + parity), data):
        part = matrix[list(rows)]
        product = np.zeros((data, data), np.uint8)
        back = inverse(part)
        for row in range(data):
            for column in range(data):
                product[row] ^= PRODUCTS[back[row, column], part[column]]
        assert (product == np.eye(data, dtype=np.uint8)).all()


def test_a_matrix_without_an_inverse_is_refused() -> None:
    with pytest.raises(ValueError, match="no inverse"):
        inverse(np.array([[1, 2], [1, 2]], np.uint8))


def test_what_is_present_recovers_itself() -> None:
    rows = recovery(generator_matrix(3, 2), [0, 3, 4], [3, 0])
    assert rows.tolist() == [[0, 1, 0], [1, 0, 0]]


@pytest.mark.parametrize("codec_type", CODECS)
@pytest.mark.parametrize(("data", "parity"), [(1, 1), (1, 2), (2, 1), (4, 3), (10, 2)])
def test_any_k_pieces_give_the_data(codec_type: type[Codec], data: int, parity: int) -> None:
    codec = codec_type(data, parity)
    block = drawn(f"{data} and {parity}", data, PIECE_BYTES)
    pieces = encoded(codec, block)
    for present in combinations(range(data + parity), data):
        lost = np.where(np.isin(np.arange(data + parity), present)[:, None], pieces, 0xCD)
        back = np.full((data, PIECE_BYTES), 0xAB, np.uint8)
        is_computed = codec.decode(lost, {number: number for number in present}, back)
        assert (back == block).all()
        assert is_computed == (present != tuple(range(data)))


@pytest.mark.parametrize("codec_type", CODECS)
def test_pieces_may_lie_in_any_rows(codec_type: type[Codec]) -> None:
    codec = codec_type(4, 2)
    block = drawn("rows", 4, PIECE_BYTES)
    pieces = encoded(codec, block)
    order = [5, 0, 3, 2, 1, 4]
    back = np.zeros_like(block)
    codec.decode(pieces[order], {number: order.index(number) for number in (0, 2, 4, 5)}, back)
    assert (back == block).all()


@needs_isal
def test_isal_and_numpy_read_each_other_for_all_66_choices() -> None:
    ours, theirs = NumpyCodec(10, 2), IsalCodec(10, 2)
    block = drawn("each other", 10, PIECE_BYTES)
    from_ours, from_theirs = encoded(ours, block), encoded(theirs, block)
    assert (from_ours == from_theirs).all()
    for present in ALL_66:
        rows = {number: number for number in present}
        for codec, pieces in ((ours, from_theirs), (theirs, from_ours)):
            back = np.zeros_like(block)
            codec.decode(pieces, rows, back)
            assert (back == block).all()


@pytest.mark.parametrize("codec_type", CODECS)
def test_pyeclib_and_we_read_each_other_for_all_66_choices(codec_type: type[Codec]) -> None:
    """The library's own interface, with its header of 80 bytes in front of each piece."""
    interface = pytest.importorskip(
        "pyeclib.ec_iface", reason='needs pyeclib: pip install "deepinfer-core[erasure]"'
    )
    driver = interface.ECDriver(ec_type="isa_l_rs_cauchy", k=10, m=2)
    codec = codec_type(10, 2)
    block = drawn("pyeclib", 10, 112)  # a length that it does not fill up
    theirs = driver.encode(block.tobytes())
    header = len(theirs[0]) - 112
    assert header == 80
    pieces = encoded(codec, block)
    assert [one[header:] for one in theirs] == [row.tobytes() for row in pieces]
    ours = [one[:header] + row.tobytes() for one, row in zip(theirs, pieces, strict=True)]
    raw = np.array([list(one[header:]) for one in theirs], np.uint8)
    for present in ALL_66:
        assert driver.decode([ours[number] for number in present]) == block.tobytes()
        back = np.zeros_like(block)
        codec.decode(raw, {number: number for number in present}, back)
        assert (back == block).all()


def test_without_the_library_its_codec_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isal, "_PACKAGE", "a-package-that-nobody-has")
    isal._library.cache_clear()
    assert library_path() is None
    with pytest.raises(ConfigError, match=r"erasure"):
        IsalCodec(10, 2)
    isal._library.cache_clear()
