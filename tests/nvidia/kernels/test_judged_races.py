"""Are the reports that this backend's judgements cover those of its kernels, and no others?"""

import re
from pathlib import Path

from deepinfer_core.testing.judged_races import read_judged
from deepinfer_nvidia.kernels.catalogue import catalogue

CATALOGUE = catalogue()
(HANDED_OVER,) = read_judged(CATALOGUE.judged)

# As racecheck words it.
READER = "deepinfer::blend_second_half(unsigned char *, deepinfer::Shared *, cutlass::bfloat16_t *)"
WRITER = (
    "deepinfer::hand_over(int, unsigned int, deepinfer::Shared *, const unsigned int (&)[16],"
    " const float (&)[2])"
)


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


def test_what_it_rests_on_stands_in_the_kernel() -> None:
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
