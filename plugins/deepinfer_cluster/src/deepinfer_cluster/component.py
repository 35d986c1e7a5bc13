"""How is the store put together from its options?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepinfer_cluster.admin import HttpAdmin
from deepinfer_cluster.link import Library
from deepinfer_cluster.pool import Place
from deepinfer_cluster.store import MooncakeStore, Terms

if TYPE_CHECKING:
    from deepinfer_core.plugin import BuildContext

    from deepinfer_cluster.options import MooncakeOptions

__all__ = ["build", "load_library"]


def load_library(replicas: int) -> Library:
    """Load the client's library, which starts nothing.

    Args:
        replicas: copies of everything that is put.
    """
    from mooncake.store import MooncakeDistributedStore, ReplicateConfig

    config = ReplicateConfig()
    config.replica_num = replicas
    return Library(new_client=MooncakeDistributedStore, put_config=config)


def build(options: MooncakeOptions, context: BuildContext) -> MooncakeStore:
    """Build the component; the pool is not looked for until it is opened."""
    return MooncakeStore(
        load_library(options.replicas),
        Place(
            master=options.master,
            metadata=options.metadata,
            protocol=options.protocol,
            devices=options.devices,
            host=options.host,
        ),
        HttpAdmin(options.admin_url, options.master),
        Terms(
            pool=options.pool,
            retention_s=dict(options.retention_s),
            sweeps=options.sweeps,
            lanes=options.lanes,
            lane_bytes=options.lane_bytes,
            retry_s=options.retry_s,
        ),
    )
