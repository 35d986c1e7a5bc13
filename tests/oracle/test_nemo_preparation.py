"""Do NeMo and we prepare tokens and images for the model in the same way?"""

import dataclasses
import io
import random

import pytest
import torch
from deepinfer_core.model.engram_vocabulary import compress_vocabulary
from deepinfer_core.model.image_geometry import image_geometry
from deepinfer_core.model.image_pixels import image_patches
from deepinfer_core.testing.tiny import tiny_test_config
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

FULL_LIMITS = {"max_image_tokens": 1024, "min_pixels": 544 * 544}


def _configs(max_wh_ratio, **limits):
    from nemo_automodel.components.models.deepseek_v41.config import DeepseekV41VisionConfig

    tiny = tiny_test_config(vision=True).vision_config
    return (
        dataclasses.replace(tiny, max_wh_ratio=max_wh_ratio, **limits),
        DeepseekV41VisionConfig(max_wh_ratio=max_wh_ratio, **limits),
    )


@pytest.mark.parametrize("max_wh_ratio", [None, 1.0, 4.0])
def test_images_of_all_shapes_get_the_same_grids(nemo, max_wh_ratio):
    from nemo_automodel.components.models.deepseek_v41.processing import _plan_image_grid

    our_config, their_config = _configs(max_wh_ratio, **FULL_LIMITS)
    draw = torch.Generator().manual_seed(5)
    sides = (10 ** (torch.rand(4000, 2, generator=draw) * 4.5)).long().clamp(min=1).tolist()
    for width, height in sides:
        ours = image_geometry(width, height, our_config)
        theirs = _plan_image_grid(width, height, their_config)
        assert (ours.width, ours.height, ours.cell_columns, ours.cell_rows) == (
            theirs.width,
            theirs.height,
            theirs.llm_width,
            theirs.llm_height,
        ), (width, height)


@pytest.mark.parametrize("max_wh_ratio", [None, 2.0])
@pytest.mark.parametrize("size", [(64, 48), (31, 200), (200, 31), (100, 50), (42, 42)])
def test_images_become_the_same_patches(nemo, size, max_wh_ratio):
    from nemo_automodel.components.models.deepseek_v41.processing import _preprocess_image
    from PIL import Image

    our_config, their_config = _configs(max_wh_ratio, max_image_tokens=64, min_pixels=42 * 42)
    noise = random.Random(f"{size}").randbytes(3 * size[0] * size[1])
    buffer = io.BytesIO()
    Image.frombytes("RGB", size, noise).save(buffer, "PNG")
    theirs, _ = _preprocess_image(buffer.getvalue(), their_config)
    ours = image_patches(buffer.getvalue(), our_config)
    assert torch.equal(ours.patch_NC, theirs.flatten(1))


def _byte_tokenizer(count: int) -> Tokenizer:
    """Random byte-level tokens: letters of both cases, accents, blanks, broken characters."""
    draw = random.Random(count)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    texts = ["a", "A", "e", "é", "É", "e\u0301", " ", "\n", "\t", "ß", "\u00a0", "\u2003"]
    texts += ["\N{LATIN SMALL LIGATURE FI}", "\N{FULLWIDTH LATIN CAPITAL LETTER A}"]
    spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    pieces = [spell.pre_tokenize_str(text)[0][0] for text in texts] + draw.sample(alphabet, 40)
    vocabulary = {symbol: i for i, symbol in enumerate(alphabet)}
    while len(vocabulary) < count:
        token = "".join(draw.choices(pieces, k=draw.randint(1, 4)))
        vocabulary.setdefault(token, len(vocabulary))
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(f"<|{n}|>", special=True) for n in ("Pad", "end", "PAD")])
    return tokenizer


def test_vocabularies_are_compressed_alike(nemo):
    from nemo_automodel.components.models.deepseek_v41.engram import _compressed_token_map
    from transformers import PreTrainedTokenizerFast

    tokenizer = _byte_tokenizer(6000)
    ours = compress_vocabulary(tokenizer)
    theirs, size = _compressed_token_map(PreTrainedTokenizerFast(tokenizer_object=tokenizer))
    assert ours.size == size < 5900
    assert ours.id_V.tolist() == list(theirs)
