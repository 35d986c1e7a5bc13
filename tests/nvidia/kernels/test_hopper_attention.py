"""Is the kernel for SM90 chosen where it was written for, and does it compile without spills?"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.interfaces.operators.attention import KeySourceSpec, SparseAttentionSpec
from deepinfer_core.testing.kernel_cases import cases_of
from deepinfer_core.testing.tiles.cubin import compile_cubin, find_nvcc
from deepinfer_core.testing.tiles.lowering import lower
from deepinfer_nvidia.kernels import attention_sparse
from deepinfer_nvidia.kernels.hopper import attention_sparse as hopper_attention

SHARED_BYTES = 227 * 1024
"""What a block may have on SM90."""

WINDOW = KeySourceSpec(number_format="mxfp8", list_capacity=128, rows_per_page=134)
ENTRIES = KeySourceSpec(number_format="fp4_e4m3x16", list_capacity=512, rows_per_page=64)
SPEC = SparseAttentionSpec(
    heads=64, head_width=512, sources=(WINDOW, ENTRIES), compute="bfloat16", scale=0.11
)
FOLDER = Path(hopper_attention.__file__).parent
TRUE_SHAPES = [case for case in cases_of("attention_sparse") if not case.small]


@pytest.mark.parametrize(
    ("change", "is_taken"),
    [
        ({}, True),
        ({"heads": 128}, True),
        ({"heads": 96}, False),
        ({"head_width": 256}, False),
        ({"compute": "float32"}, False),
        ({"sources": (WINDOW,)}, True),
        ({"sources": (replace(WINDOW, number_format="float32"), ENTRIES)}, False),
        ({"sources": (WINDOW, replace(ENTRIES, list_capacity=1920))}, True),
        ({"sources": (WINDOW, replace(ENTRIES, list_capacity=1984))}, False),
    ],
)
def test_it_takes_the_shapes_that_it_was_written_for(
    change: dict[str, Any], is_taken: bool
) -> None:
    assert hopper_attention.LIMITS.takes(replace(SPEC, **change)) is is_taken


def test_the_longest_lists_fit_into_shared_memory() -> None:
    spec = replace(SPEC, sources=(WINDOW, replace(ENTRIES, list_capacity=1920)))
    lowered = lower(hopper_attention.build(spec, hopper_attention.Tuning()), "sm_90a")
    assert lowered.dynamic_shared_bytes <= SHARED_BYTES


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        ((WINDOW,), "deepinfer::attend<64, 2, 128, 134, deepinfer::kNone, 0, 0>"),
        ((WINDOW, ENTRIES), "deepinfer::attend<64, 2, 128, 134, 3, 512, 64>"),
    ],
)
def test_it_is_compiled_for_its_sources(sources: tuple[KeySourceSpec, ...], found: str) -> None:
    spec = replace(SPEC, sources=sources)
    lowered = lower(hopper_attention.build(spec, hopper_attention.Tuning()), "sm_90a")
    assert found in lowered.source
    assert "attention_sparse_kernel(" in lowered.source


@pytest.mark.parametrize(
    ("file", "reader", "last_wait"),
    [
        ("keys", "Tiles wait_for_start(", "cp.async.wait_all"),
        ("sparse", "void wait_for_keys(", "mbarrier_wait(shared->full["),
        ("sparse", "void blend_second_half(", "mbarrier_wait(shared->weight_full["),
    ],
)
def test_who_multiplies_fences_what_others_stored_after_the_wait_for_it(
    file: str, reader: str, last_wait: str
) -> None:
    """Those who store do not, so without this fence products could read what was there before."""
    text = (FOLDER / f"attention_{file}.cuh").read_text(encoding="utf-8")
    body = text[text.index(reader) :]
    body = body[: body.index("\n}")]
    fence = body.index("tl::fence_proxy_async()")
    assert body.index(last_wait) < fence
    assert "mbarrier_wait" not in body[fence:]
    assert "wgmma" not in body[:fence]
    assert "blend_from" not in body[:fence]


def test_every_wait_for_keys_or_weights_is_one_that_fences() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("attention_*.cuh"))
    assert text.count("mbarrier_wait(shared->full[") == 2
    assert text.count("mbarrier_wait(shared->weight_full[") == 1


def test_who_stores_waits_for_no_load_of_the_next_tile() -> None:
    """A fence waits for every load that its thread has asked for."""
    text = (FOLDER / "attention_keys.cuh").read_text(encoding="utf-8")
    assert "fence" not in text[text.index("void announce(") :]


@pytest.mark.slow
@pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc")
@pytest.mark.parametrize("case", TRUE_SHAPES, ids=lambda case: case.name)
def test_it_spills_no_more_than_it_states(case: Any) -> None:
    kernel = hopper_attention.build(case.spec, hopper_attention.Tuning())
    report = compile_cubin(lower(kernel, "sm_90a"))
    report.require_spills_within(hopper_attention.LIMITS.spilled_bytes)
    assert report.registers * hopper_attention.Tuning().threads <= 64 * 1024


@pytest.mark.slow
@pytest.mark.parametrize("case", TRUE_SHAPES, ids=lambda case: case.name)
def test_its_twin_fits_into_shared_memory(case: Any) -> None:
    tuning = attention_sparse.Tuning()
    kernel = attention_sparse.build(case.spec, tuning)
    lowered = lower(kernel, "sm_90a", pass_configs=dict(tuning.pass_configs))
    assert 0 < lowered.dynamic_shared_bytes <= SHARED_BYTES
