"""Does lockstep generation compute what the network computes over whole rows?"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[3] / "plugins" / "deepinfer_tiny"))

from training import ngram, parameters
from training.config import UNIT
from training.decode import Decoder
from training.dropout import Dropout
from training.network import Network
from training.positions import Batch
from training.precision import EXACT, prepare

LENGTH = 48


def test_greedy_choices_are_the_argmax_of_a_pass_over_the_whole_text() -> None:
    torch.manual_seed(5)
    stacked = {k: v * 3 for k, v in parameters.initialise(UNIT, 5).items()}
    w = prepare(stacked, EXACT)
    tables = ngram.build(UNIT, [i % 4000 for i in range(UNIT.vocab_size)])
    network = Network(config=UNIT, tables=tables, precision=EXACT)
    decoder = Decoder(network, w, batch=1, length=LENGTH)
    prompts = torch.randint(3, 4000, (1, 9))
    decoder.tokens_BL[:, :9], decoder.given_BL[:, :9] = prompts, True
    for _ in range(LENGTH - 1):
        decoder.step()
    with torch.no_grad():
        batch = Batch.packed(decoder.tokens_BL, UNIT.bos_token_id)
        out = network(w, batch, Dropout.none(), torch.zeros(()))
    logits = (out.hidden_NC @ w["head"].T).unflatten(0, (1, LENGTH))
    logits[..., [UNIT.pad_token_id, UNIT.bos_token_id]] = -torch.inf
    assert torch.equal(logits.argmax(-1)[:, 8:-1], decoder.tokens_BL[:, 9:])
