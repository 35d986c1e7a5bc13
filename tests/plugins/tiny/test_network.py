"""Does the training network compute the published V4.1 forward pass?

Golden values are the published ones for the unit-test sizes: weights from one generator in the
order of the checkpoint names, 96 tokens, fp32, no quantisation. They carry four decimals and two
independent implementations agree on them to 1.2e-5, so 1e-4 covers printing and summation order.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[3] / "plugins" / "deepinfer_tiny"))

from training import drafter, ngram, parameters
from training.config import UNIT
from training.dropout import Dropout
from training.network import Network
from training.positions import Batch
from training.precision import EXACT, prepare

TOLERANCE = 1e-4
ROWS = {
    0: [-1.0774, 0.4482, 0.0856, 0.7319, -0.4600, 0.2529, -0.4221, -2.6166],
    1: [-0.9890, -0.6156, -0.0993, 1.4045, 1.3864, -0.0460, -2.5685, 0.0507],
    40: [-1.4846, 0.0603, 0.9711, 1.1953, -1.7516, 2.0830, 0.8112, -0.2446],
    95: [1.1587, 1.8576, -1.4980, 0.1861, 1.6465, 0.1286, 0.0938, 0.5204],
}


def golden_value(name: str, z: np.ndarray) -> np.ndarray:
    if name.endswith(("norm.weight", "q_weight", "k_weight")) or (
        "hc_" in name and name.endswith("_scale")
    ):
        return 1 + 0.1 * z
    if name.endswith("attn_sink"):
        return 0.5 * z
    if name.endswith(("gate.bias", "gate.bias_vl", "_fn")):
        return 0.05 * z
    if name.endswith("_base"):
        return 0.3 * z
    if name in ("embed.weight",) or name.endswith(
        ("markov_head.embed.weight", "engram.embed.weight")
    ):
        return 0.5 * z
    return z / np.sqrt(z.shape[-1])


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    names = parameters.to_checkpoint(UNIT, parameters.initialise(UNIT, 0))
    rng, plain = np.random.default_rng(20260910), {}
    for name in sorted(names):
        z = rng.standard_normal(tuple(names[name].shape))
        plain[name] = torch.from_numpy(golden_value(name, z).astype(np.float32))
    return prepare(parameters.from_checkpoint(UNIT, plain), EXACT)


@pytest.fixture(scope="module")
def network() -> Network:
    tables = ngram.build(UNIT, [i % 4000 for i in range(UNIT.vocab_size)])
    return Network(config=UNIT, tables=tables, precision=EXACT)


@pytest.fixture(scope="module")
def batch() -> Batch:
    t = torch.arange(96)
    tokens = (3 + (31 * t * t + 17 * t) % 3990).unsqueeze(0)
    return Batch.packed(tokens, bos=UNIT.bos_token_id)


@pytest.fixture(scope="module")
def output(network, weights, batch):
    with torch.no_grad():
        return network(weights, batch, Dropout.none(), torch.zeros(()))


@pytest.mark.parametrize("row", sorted(ROWS))
def test_logits_equal_the_published_ones(output, weights, row) -> None:
    logits = output.hidden_NC[row] @ weights["head"].T
    assert (logits[:8] - torch.tensor(ROWS[row])).abs().max() < TOLERANCE


def test_argmax_of_the_last_rows_equals_the_published_one(output, weights) -> None:
    logits = output.hidden_NC[88:] @ weights["head"].T
    assert logits.argmax(-1).tolist() == [1693, 3030, 860, 2970, 3642, 2525, 2375, 2385]


def test_drafts_and_confidences_equal_the_published_ones(network, weights, batch, output) -> None:
    # The anchor is the row after the last one, so the rows are extended by one block.
    longer = torch.cat((batch.tokens_BT, torch.full((1, 16), 5)), dim=1)
    keys = drafter.context_keys(network, weights, output.features_NX, batch)
    keys = [torch.cat((k, k.new_zeros(1, 16, k.shape[-1])), dim=1) for k in keys]
    where = Batch.packed(longer, bos=UNIT.bos_token_id)
    anchor, golden = torch.tensor([[96]]), torch.tensor([[2385]])
    with torch.no_grad():
        block = drafter.propose(network, weights, keys, where, anchor, golden, Dropout.none())
        previous, drafts, confidences = golden[0, 0], [], []
        for i in range(UNIT.dspark_block_size):
            logits, score = drafter.sequential(
                weights, block.raw_BAPC[0, 0, i], block.base_BAPV[0, 0, i], previous
            )
            previous = logits.argmax()
            drafts.append(int(previous))
            confidences.append(float(torch.sigmoid(score)))
    assert drafts == [183, 2844, 2844, 2844, 2844]
    expected = [0.063527, 0.963342, 0.958861, 0.981751, 0.977626]
    assert confidences == pytest.approx(expected, abs=TOLERANCE)


def test_a_document_is_computed_alike_alone_and_behind_another(network, weights) -> None:
    generator = torch.Generator().manual_seed(11)
    texts = torch.randint(3, 4000, (2, 48), generator=generator)
    texts[:, 0] = UNIT.bos_token_id
    with torch.no_grad():
        together = network(
            weights,
            Batch.packed(texts.reshape(1, 96), UNIT.bos_token_id),
            Dropout.none(),
            torch.zeros(()),
        )
        alone = network(
            weights, Batch.packed(texts[1:], UNIT.bos_token_id), Dropout.none(), torch.zeros(())
        )
    # The same sums over differently padded rows: fp32 rounding of values of size 1 to 4.
    assert (together.hidden_NC[48:] - alone.hidden_NC).abs().max() < TOLERANCE


def test_a_later_token_changes_nothing_before_it(network, weights, batch, output) -> None:
    changed = batch.tokens_BT.clone()
    changed[0, 50] = 7
    with torch.no_grad():
        other = network(
            weights, Batch.packed(changed, UNIT.bos_token_id), Dropout.none(), torch.zeros(())
        )
    assert torch.equal(other.hidden_NC[:50], output.hidden_NC[:50])
    assert not torch.equal(other.hidden_NC[50:], output.hidden_NC[50:])
