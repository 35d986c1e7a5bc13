"""Order of choices by expert. Twin: ``deepinfer_core.reference.all_to_all``, ``dispatch``.

A block has an expert and looks at all choices twice: it counts those of experts before its own,
then places its own in order. Its threads have neighbouring pieces of the list, so that no order is
lost and blocks need nothing of one another. The first block places those without an expert, too.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.all_to_all import ExchangeOrderSpec

from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning", "launch_tunings"]


def default_tuning(_spec: ExchangeOrderSpec) -> KernelTuning:
    """For few rows: counts of all threads are added up one by one."""
    return KernelTuning(threads=64)


def launch_tunings(_spec: ExchangeOrderSpec) -> tuple[KernelTuning, ...]:
    """For many rows, short pieces."""
    return (KernelTuning(threads=256),)


def build(spec: ExchangeOrderSpec, tuning: KernelTuning) -> Any:
    """Rows of ``spec.choices`` choices among ``spec.experts`` experts."""
    rows, dispatched = T.dynamic("rows"), T.dynamic("dispatched")
    experts, choices, threads = spec.experts, spec.choices, tuning.threads

    @T.prim_func
    def all_to_all_order(
        expert_Tk: T.Tensor((rows, choices), "int64"),
        row_Tk: T.Tensor((rows, choices), "int64"),
        choice_R: T.Tensor((dispatched,), "int64"),
        ends_E: T.Tensor((experts,), "int64"),
    ) -> None:
        with T.Kernel(experts, threads=threads) as expert:
            let_next_start(rows)
            T.pdl_sync()
            thread = T.get_thread_binding()
            before = T.alloc_shared((threads,), "int32")
            own = T.alloc_shared((threads,), "int32")
            absent = T.alloc_shared((threads,), "int32")
            counted = T.alloc_local((3,), "int32")
            place = T.alloc_local((2,), "int32")
            found = T.alloc_var("int32")
            piece = T.ceildiv(rows * choices, threads)
            for j in T.unroll(3):
                counted[j] = 0
            for i in T.serial(piece):
                index = thread * piece + i
                if index < rows * choices:
                    found = T.cast(expert_Tk[index // choices, index % choices], "int32")
                    if found < 0:
                        counted[2] += 1
                    else:
                        if found < expert:
                            counted[0] += 1
                        if found == expert:
                            counted[1] += 1
            before[thread] = counted[0]
            own[thread] = counted[1]
            absent[thread] = counted[2]
            T.sync_threads()
            place[0] = 0
            place[1] = rows * choices
            for t in T.serial(threads):
                place[0] += before[t]
                place[1] -= absent[t]
                if t < thread:
                    place[0] += own[t]
            for t in T.serial(threads):
                if t < thread:
                    place[1] += absent[t]
            if thread == threads - 1:
                ends_E[expert] = T.cast(place[0] + own[thread], "int64")
            for i in T.serial(piece):
                index = thread * piece + i
                if index < rows * choices:
                    found = T.cast(expert_Tk[index // choices, index % choices], "int32")
                    if found == expert:
                        row_Tk[index // choices, index % choices] = T.cast(place[0], "int64")
                        choice_R[place[0]] = T.cast(index, "int64")
                        place[0] += 1
                    if found < 0 and expert == 0:
                        row_Tk[index // choices, index % choices] = T.int64(-1)
                        choice_R[place[1]] = T.int64(-1)
                        place[1] += 1

    return all_to_all_order
