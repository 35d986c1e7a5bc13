"""Which memory does a graph record into?"""

import gc

from deepinfer_core.interfaces.recording import Recording
from deepinfer_nvidia.device.graphs import GraphPool


class NoGraph(Recording):
    @property
    def memory_bytes(self) -> int:
        return 0

    def repeat(self) -> None:
        pass


def test_living_graphs_share_a_pool_and_later_ones_get_another() -> None:
    handles = iter("abc")
    pool = GraphPool(lambda: next(handles))
    first, second = NoGraph(), NoGraph()
    assert pool.handle() == "a"
    pool.add(first)
    assert pool.handle() == "a"
    pool.add(second)
    del first
    gc.collect()
    assert pool.handle() == "a", "one graph is left"
    del second
    gc.collect()
    assert pool.handle() == "b", "torch has given the first pool up"
