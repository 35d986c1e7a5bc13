"""From which distribution is a token drawn?"""

import math
from collections.abc import Mapping

__all__ = ["adjusted", "log_softmax", "processed", "survivors"]

_WEIGHT_ONE = 1 << 31


def log_softmax(logits: list[float]) -> list[float]:
    """Log-probabilities of one row."""
    largest = max(logits)
    total = math.fsum(math.exp(x - largest) for x in logits)
    return [x - largest - math.log(total) for x in logits]


def survivors(
    logits: list[float], temperature: float, top_p: float, top_k: int, min_p: float
) -> list[int]:
    """Ids that survive the truncations, ascending.

    top-p measures mass in units of 2^-31 and keeps the shortest prefix above its share.
    """
    scaled = [x / temperature for x in logits]
    order = sorted(range(len(logits)), key=lambda token: (-scaled[token], token))
    probability = [math.exp(x) for x in log_softmax(scaled)]
    kept, mass = [], 0
    for rank, token in enumerate(order):
        if top_p < 1 and mass > math.floor(top_p * _WEIGHT_ONE):
            break
        if 0 <= top_k <= rank or probability[token] < min_p * probability[order[0]]:
            break
        kept.append(token)
        mass += math.floor(probability[token] * _WEIGHT_ONE)
    return sorted(kept)


def processed(
    logits: list[float], temperature: float, top_p: float, top_k: int, min_p: float
) -> list[float]:
    """Log-probabilities that a token is drawn with; -inf where it is dropped."""
    kept = set(survivors(logits, temperature, top_p, top_k, min_p))
    return log_softmax(
        [x / temperature if token in kept else -math.inf for token, x in enumerate(logits)]
    )


def adjusted(
    logits: list[float],
    *,
    allowed: list[int] | None = None,
    bias: Mapping[int, float],
    seen: Mapping[int, int],
    repetition: float,
    frequency: float,
    presence: float,
) -> list[float]:
    """Logits after mask, bias and penalties, token by token.

    ``seen`` tells of each earlier token how often it stands in the output.
    """
    found = []
    for token, raw in enumerate(logits):
        x = raw + bias.get(token, 0.0)
        if token in seen:
            x = x / repetition if x > 0 else x * repetition
            x -= frequency * seen[token] + (presence if seen[token] else 0.0)
        found.append(x if allowed is None or token in allowed else -math.inf)
    return found
