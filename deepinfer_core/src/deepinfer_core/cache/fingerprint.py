"""Are two engines' cached bytes laid out alike?

Bytes that one layout wrote and another reads are garbage that nothing notices. The fingerprint of a
layout therefore enters every key: a change of layout makes entries miss, never be misread.
"""

import json
import sys
from dataclasses import asdict

from deepinfer_core.cache.keys import framed_digest
from deepinfer_core.cache.layout import CacheLayout

__all__ = ["CODEC_VERSION", "layout_fingerprint"]

CODEC_VERSION = 1
"""Raise it when rows of some format change their bytes, but neither name nor size.

Such as another order of the scales in a row, or another rounding of values to codes.
"""

_FINGERPRINT_BYTES = 16


def layout_fingerprint(layout: CacheLayout, codec_version: int = CODEC_VERSION) -> bytes:
    """16 bytes that differ if any byte of a block or state slot could mean something else.

    Bound are all fields of the layout: tokens of a block, owner layers, and of each region its
    place, rows (hence the ratio), width and format; lengths of the rings; strides. Then the version
    of the codecs, and the machine's byte order, because wide formats are stored as it has them.

    Args:
        layout: of the caches.
        codec_version: of the formats' bytes.
    """
    # asdict walks all fields, those that join later included; sorted keys fix the order.
    places = json.dumps(asdict(layout), sort_keys=True, separators=(",", ":"))
    version = str(codec_version).encode()
    digest = framed_digest(b"lay1", version, sys.byteorder.encode(), places.encode())
    return digest[:_FINGERPRINT_BYTES]
