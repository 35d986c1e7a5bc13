"""Does a store of blocks keep the contract of ``interfaces.kv_store``?

    class TestMyStore(KvStoreContract):
        @pytest.fixture
        def component(self, tmp_path: Path) -> KvStore:
            return MyStore(tmp_path, capacity_bytes=100 * 4096)

What else a test may do to the store is said by overriding members of ``KvStoreSuite``: let time
pass, damage a block, open it once more, set a quota. Without them those tests are skipped, with
what is missing as the reason.
"""

from __future__ import annotations

from deepinfer_core.testing.contracts.kv_store_calls import KvStoreCalls
from deepinfer_core.testing.contracts.kv_store_faults import KvStoreFaults
from deepinfer_core.testing.contracts.kv_store_retention import KvStoreRetention
from deepinfer_core.testing.contracts.kv_store_upkeep import KvStoreUpkeep

__all__ = ["KvStoreContract"]


class KvStoreContract(KvStoreCalls, KvStoreRetention, KvStoreFaults, KvStoreUpkeep):
    """What every component of kind ``kv_store`` must do."""
