"""Are the reports that this backend's judgements cover those of its kernels, and no others?"""

import re
from pathlib import Path

from deepinfer_core.testing.judged_races import read_judged
from deepinfer_nvidia.kernels.catalogue import catalogue

CATALOGUE = catalogue()
HANDED_OVER, FREED = read_judged(CATALOGUE.judged)

# As racecheck words it.
READER = "deepinfer::blend_second_half(unsigned char *, deepinfer::Shared *, cutlass::bfloat16_t *)"
WRITER = (
    "deepinfer::hand_over(int, unsigned int, deepinfer::Shared *, const unsigned int (&)[16],"
    " const float (&)[2])"
)
COPY = "deepinfer::bulk_copy(unsigned int, const void *, unsigned int, unsigned int)"
EXPERTS = "deepinfer::Experts<(int)3, (int)1280, (int)608, (int)2, float, (int)0, (int)224>"
MULTIPLY = f"{EXPERTS}::multiply<(int)128>(const {EXPERTS}::Item &, int &, unsigned int &) const"


def report(reader: str = READER, writer: str = WRITER) -> tuple[str, str]:
    return (
        f"Error: Race reported between Read access at {reader}+0x1a90 in tvm_kernels.cu:600",
        f"and Write access at {writer}+0x7500 in tvm_kernels.cu:512 [224 hazards]",
    )


def test_the_judgement_covers_two_reports_of_what_the_scorers_hand_over() -> None:
    """Readers load two numbers each: the changes of both rows that a thread has."""
    assert HANDED_OVER.kernel in CATALOGUE.kernels
    assert HANDED_OVER.covers(report())
    assert HANDED_OVER.reports == 2
    assert not HANDED_OVER.covers(report(reader=WRITER, writer=READER))
    for name in ("score_and_blend", "gather_source", "list_keys"):
        other = f"deepinfer::{name}(unsigned char *)"
        assert not HANDED_OVER.covers(report(reader=other))
        assert not HANDED_OVER.covers(report(writer=other))


def test_another_covers_four_copies_over_weights_that_were_multiplied() -> None:
    """Four copies of a stage, one a tile of channels; or two, read by whole and halved items."""

    def copied(reader: str) -> tuple[str, str]:
        return (
            f"Error: Race reported between Write access at {COPY}+0x4ea0 in tvm_kernels.cu:35",
            f"and Read access at {reader}+0xeb0 in tvm_kernels.cu:323 [19840 hazards]",
        )

    assert FREED.kernel in CATALOGUE.kernels
    assert FREED.covers(copied(MULTIPLY))
    assert FREED.reports == 4
    assert not FREED.covers(copied(f"{EXPERTS}::item(int) const"))
    assert not FREED.covers(report())
    assert not HANDED_OVER.covers(copied(MULTIPLY))


def test_what_the_first_rests_on_stands_in_the_kernel() -> None:
    """Both waits come before the loads, and the warp meets before its first lane arrives."""
    folder = CATALOGUE.folder / "hopper"
    kernel = (folder / "attention_sparse.cuh").read_text(encoding="utf-8")
    reader = kernel[kernel.index("void blend_second_half(") :]
    order = [
        reader.index(words)
        for words in (
            "mbarrier_wait(shared->weight_full[stage]",
            "shared->change[stage][r]",
            "__syncwarp()",
            "mbarrier_arrive(shared->weight_free[stage])",
        )
    ]
    assert order == sorted(order)
    writer = kernel[kernel.index("void hand_over(") : kernel.index("void wait_for_keys(")]
    order = [
        writer.index(words)
        for words in (
            "mbarrier_wait(shared->weight_free[stage]",
            "shared->change[stage][r] = ",
            "announce<false>(shared->weight_full[stage])",
        )
    ]
    assert order == sorted(order)
    announce = Path(folder / "attention_keys.cuh").read_text(encoding="utf-8")
    assert re.search(
        r"__syncwarp\(\);\s+if \(threadIdx\.x % 32 == 0\) tl::mbarrier_arrive", announce
    )


def test_what_the_second_rests_on_stands_in_the_kernel() -> None:
    """The loads of a stage, the product that takes them in, the wait, and then the release."""
    text = (CATALOGUE.folder / "hopper/gemm_experts.cuh").read_text(encoding="utf-8")
    consumer = text[text.index("void multiply(") : text.index("void consume()")]
    order = [
        consumer.index(words)
        for words in (
            "barrier_wait(full(stage), phase)",
            "record + warp * 512 + lane * 16",
            "tl::wgmma_rs<",
            "wgmma.wait_group.sync.aligned 1;",
            "release(previous)",
        )
    ]
    assert order == sorted(order)
    producer = text[text.index("void produce()") : text.index("void store(")]
    assert producer.index("barrier_wait(empty(stage), phase)") < producer.index("copy_weights(to")
