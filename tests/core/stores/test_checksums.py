"""Is a checksum what its name says, and does every machine compute the same one?"""

import subprocess
import sys

import pytest
from deepinfer_core.stores.checksums import (
    CHECKSUM_BYTES,
    CHECKSUMS,
    CRC_32,
    XXH3_128,
    best_checksum,
)


def test_crc_32_has_the_published_check_value() -> None:
    # The check value of CRC-32/ISO-HDLC, for the nine digits.
    assert CHECKSUMS[CRC_32](b"123456789") == 0xCBF43926.to_bytes(CHECKSUM_BYTES, "little")


def test_xxh3_has_the_published_value_of_no_bytes_at_all() -> None:
    pytest.importorskip("xxhash", reason="comes with the extra disk")
    # xxHash's own test vectors, XXH3_128bits with seed 0 and length 0, in canonical order.
    assert CHECKSUMS[XXH3_128](b"").hex() == "99aa06d3014798d86001c324468d497f"
    assert best_checksum() == XXH3_128


def test_without_the_package_crc_32_is_the_best() -> None:
    code = (
        "import sys; sys.modules['xxhash'] = None\n"
        "from deepinfer_core.stores.checksums import CHECKSUMS, best_checksum\n"
        "print(best_checksum(), *CHECKSUMS)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.split() == [b"1", b"1"]
