"""Which seed has each of several answers to one request?

Sample 0 has the request's seed, so that asking for more answers does not change the first one. The
others have the output of SplitMix64, by Steele, Lea and Flood, after so many steps from that seed:
requests with neighbouring seeds share no answers.
"""

from __future__ import annotations

__all__ = ["sample_seed"]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def sample_seed(seed: int, sample: int) -> int:
    """Unsigned 64-bit seed of an answer.

    Args:
        seed: unsigned 64 bits, of the request.
        sample: >= 0, place of the answer among those of the request.
    """
    if sample == 0:
        return seed
    z = (seed + sample * _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
