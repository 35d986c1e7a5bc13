"""Are answers over a shared folder those of an engine without a store, bit for bit?"""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.request_options import RequestOptions
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.stores.retention import Limits
from deepinfer_core.testing.beginnings import words
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.plain_traffic import PlainTraffic
from deepinfer_core.testing.small_engines import Answer, Ask, EngineShape, slim_config, small_engine
from deepinfer_core.testing.small_stores import PATIENT, small_groups
from deepinfer_core.testing.tiny_model import tiny_model
from deepinfer_threefs.medium import PosixMedium
from deepinfer_threefs.place import StorePlace
from deepinfer_threefs.store import ThreefsStore
from deepinfer_threefs.testing.usrbio import FakeUsrbio, Habits
from deepinfer_threefs.usrbio import UsrbioMedium

SHAPE = EngineShape(block_tokens=8, blocks=128, max_rows=256, snapshots=8)
PROMPTS = [words(f"conversation {number}", 100 + 9 * number) for number in range(3)]
LIMITS = Limits(
    capacity_bytes=1 << 26,
    retention_s={"agent": 1e6, "chat": 1e6, "state": 1e6},
    age_step_s=3600.0,
    refresh_ratio=1 / 16,
)


@pytest.fixture(scope="module")
def model() -> TextModel:
    return tiny_model(Numerics(), config=slim_config(16))


@pytest.fixture
def medium(tmp_path: Path) -> Iterator[PosixMedium]:
    """Rings that shorten, delay and shuffle what they do, and meet uncommitted versions."""
    fake = FakeUsrbio(tmp_path, Habits(delay_s=1e-4, shortened=40, pending=3))
    yield UsrbioMedium(fake, ring_entries=7, retries=4)
    fake.files.close()


def asks() -> list[Ask]:
    drawn = [SamplingParams(temperature=1, seed=seed, max_tokens=9) for seed in range(3)]
    return [
        Ask(prompt=prompt, params=params, options=RequestOptions(cache_salt="us"))
        for prompt, params in zip(PROMPTS, drawn, strict=True)
    ]


def same(found: list[Answer], wanted: list[Answer]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.done.token_ids == other.done.token_ids
        assert_same_bits(one.logits_RV, other.logits_RV)


def test_answers_over_rings_have_the_bits_of_a_run_without_cache(
    model: TextModel, medium: PosixMedium, tmp_path: Path
) -> None:
    alone = small_engine(model, replace(SHAPE, shares=False))
    wanted = alone.answer(asks())
    alone.close()
    place = StorePlace(folder=str(tmp_path / "store"), segment_bytes=1 << 17, durable=False)
    came = 0
    for _ in range(2):  # a machine that stores, and another one that finds
        store = ThreefsStore(place, LIMITS, medium=medium)
        store.open(small_groups(model, SHAPE))
        engine = small_engine(model, SHAPE, traffic=PlainTraffic(store), store_limits=PATIENT)
        found = engine.answer(asks())
        engine.close()
        same(found, wanted)
        came = sum(one.done.usage.stored_tokens for one in found)
        store.close()
    assert came >= sum(len(prompt) // 8 * 8 - 24 for prompt in PROMPTS)


def test_the_fetcher_of_an_engine_uses_a_shared_folder(
    byte_checkpoint: Path, tmp_path: Path
) -> None:
    options = {"folder": str(tmp_path / "store"), "capacity_bytes": 1 << 26, "durable": False}
    prompts = [words(f"stored {number}", 300 + 16 * number) for number in range(4)]
    drawn = SamplingParams(temperature=1, seed=5, max_tokens=8, ignore_eos=True)
    with LLM(
        byte_checkpoint,
        max_num_seqs=4,
        max_model_len=512,
        components={"kv_store": {"use": "threefs.posix", "options": options}},
        kv_store={"match_timeout_s": 20.0, "fetch_timeout_s": 60.0, "fetch_patience": 1e9},
    ) as llm:
        cold = llm.generate(prompt_token_ids=prompts, sampling_params=drawn)
        pages = llm.engine.batch.pages
        assert pages.exchange is not None
        while pages.exchange._traffic.counts().writing:
            time.sleep(0.01)
        pages.cache.clear()
        found = llm.generate(prompt_token_ids=prompts, sampling_params=drawn)
    assert [one.token_ids for one in found] == [one.token_ids for one in cold]
    assert [one.usage.stored_tokens for one in cold] == [0] * 4
    assert [one.usage.stored_tokens for one in found] == [256] * 4
