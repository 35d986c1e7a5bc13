"""Does a kernel that starts while the one before drains wait before it touches memory?

Such a kernel may read what that one still writes, or write what it still reads, until it has
waited; and whoever comes next relies on it having waited. No interpreter sees that. Whoever lets
the next kernel start early must wait itself, too: the next one waits for it alone, and for all
before it only because it has.
"""

import re

import pytest
from deepinfer_core.testing.kernel_trials import KernelTrial, trials
from deepinfer_core.testing.tiles.lowering import lower
from deepinfer_nvidia.kernels.catalogue import catalogue
from deepinfer_nvidia.kernels.early_start import FEW_ROWS

CATALOGUE = catalogue()
TRIGGER, WAIT = "cudaTriggerProgrammaticLaunchCompletion();", "cudaGridDependencySynchronize();"
CONSTANT = {
    "gemm_dense": {"weight_GNK"},
    "hopper/gemm_dense": {"weight_GNK"},
    "transform_mhc_mixes": {"base_M", "scale_3"},
    "transform_mhc_products": {"part_NK"},
}
"""What is read before the wait: weights, which no kernel of a step writes."""


def text_of(kernel: str) -> str:
    files = [f"{kernel}.py", "hopper/spread.py" if kernel == "hopper/gemm_dense" else ""]
    return "".join((CATALOGUE.folder / name).read_text("utf-8") for name in files if name)


EARLY = [kernel for kernel in CATALOGUE.kernels if "T.pdl_sync()" in text_of(kernel)]


def some_trials(kernel: str) -> list[KernelTrial]:
    """One of each way in which a kernel is built."""
    ways: dict[object, KernelTrial] = {}
    for trial in trials(CATALOGUE, kernel):
        ways.setdefault(getattr(trial.tuning, "is_spread", None), trial)
    return list(ways.values())


def complaints(source: str, names: set[str], constant: set[str]) -> list[str]:
    """What is wrong with the text of a kernel whose arguments have these names."""
    body = source[source.rindex("__global__") :].partition("{")[2]
    # The description of a tensor is an argument of the launch, which nobody writes.
    body = re.sub(r"tl::prefetch_tma_descriptor\(\w+\);", "", body)
    before, wait, behind = body.partition(WAIT)
    if not wait:
        return ["it does not wait"] if TRIGGER in body else []
    found = []
    if before.count("{") != before.count("}") or "return" in before:
        found.append("some threads do not wait")
    if TRIGGER not in before:
        found.append("it does not let the next one start early")
    elif not re.search(rf"if \(\w+ <= {FEW_ROWS}\) {{\s*{re.escape(TRIGGER)}", before):
        found.append("it lets the next one start early with many rows, too")
    if WAIT in behind or TRIGGER in behind:
        found.append("it waits, or lets start, twice")
    touched = {name for name in names if re.search(rf"\b{name}(_desc)?\b", before)}
    found += [f"{name} is touched before the wait" for name in sorted(touched - constant)]
    return found


@pytest.mark.parametrize("kernel", EARLY)
def test_only_constants_are_touched_before_the_wait(kernel: str) -> None:
    for trial in some_trials(kernel):
        function = trial.function()
        source = lower(function, "sm_90a", pass_configs=trial.pass_configs).source
        names = {buffer.name for buffer in function.buffer_map.values()}
        assert complaints(source, names, CONSTANT.get(kernel, set())) == [], trial.id


def test_all_products_and_kernels_of_rows_start_early() -> None:
    late = {kernel for kernel in CATALOGUE.kernels if kernel not in EARLY}
    assert {kernel for kernel in late if not kernel.startswith("sampler_")} == {
        "attention_sparse",
        "hopper/attention_sparse",
    }


KERNEL = "__global__ void k(float* x, float* w, int rows) {{\n{}\n}}"
START = f"if (rows <= {FEW_ROWS}) {{ {TRIGGER} }}"


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (f"{START} x[0] = 1;", "it does not wait"),
        (f"{START} x[0] = 1; {WAIT}", "x is touched before the wait"),
        (f"{START} f(x_desc); {WAIT}", "x is touched before the wait"),
        (f"{START} if (w[0]) {{ {WAIT} }}", "some threads do not wait"),
        (f"{START} if (w[0]) return; {WAIT}", "some threads do not wait"),
        (f"{WAIT} x[0] = 1;", "it does not let the next one start early"),
        (f"{TRIGGER} {WAIT} x[0] = 1;", "it lets the next one start early with many rows, too"),
        (f"{START} {WAIT} x[0] = 1; {WAIT}", "it waits, or lets start, twice"),
    ],
)
def test_what_is_wrong_with_a_start_is_said(body: str, complaint: str) -> None:
    assert complaints(KERNEL.format(body), {"x", "w"}, {"w"}) == [complaint]


def test_weights_may_be_read_before_the_wait() -> None:
    assert complaints(KERNEL.format(f"{START} f(w); {WAIT} x[0] = 1;"), {"x", "w"}, {"w"}) == []
    assert complaints(KERNEL.format("x[0] = 1;"), {"x", "w"}, {"w"}) == []
