"""Which tests must a component of each kind pass?

One class an interface. A test module subclasses it and says where the component comes from:

    class TestMyAttention(AttentionContract):
        @pytest.fixture
        def component(self) -> SparseAttention:
            return MyAttention()

Class attributes narrow what is swept to what a backend supports, and say on which device tensors
live. Promises are tested where they are declared: a component that promises ``never`` skips that
test, one that promises ``on_request`` is built strict by its fixture.

This package imports pytest, which ``deepinfer-core`` does not install: it belongs to the test
environment of whoever runs the suites.
"""

from deepinfer_core.testing.contracts.all_to_all import AllToAllContract
from deepinfer_core.testing.contracts.attention import AttentionContract
from deepinfer_core.testing.contracts.cache_codec import CacheCodecContract
from deepinfer_core.testing.contracts.dense_gemm import DenseGemmContract
from deepinfer_core.testing.contracts.device import DeviceContract
from deepinfer_core.testing.contracts.grammar import GrammarContract
from deepinfer_core.testing.contracts.grouped_gemm import GroupedGemmContract
from deepinfer_core.testing.contracts.indexer import IndexerContract
from deepinfer_core.testing.contracts.kv_store import KvStoreContract
from deepinfer_core.testing.contracts.ratio_rule import RatioRuleContract
from deepinfer_core.testing.contracts.sampler import SamplerContract
from deepinfer_core.testing.contracts.transform import TransformContract

__all__ = [
    "AllToAllContract",
    "AttentionContract",
    "CacheCodecContract",
    "DenseGemmContract",
    "DeviceContract",
    "GrammarContract",
    "GroupedGemmContract",
    "IndexerContract",
    "KvStoreContract",
    "RatioRuleContract",
    "SamplerContract",
    "TransformContract",
]
