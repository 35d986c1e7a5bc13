"""What do the suites of compiled components share?"""

import pytest
from deepinfer_core.config.kernel_cache import kernel_cache_folder
from deepinfer_core.plugin import BuildContext, ModelNeeds


@pytest.fixture(scope="session")
def native_context() -> BuildContext:
    """For the factories of core.cpu; kernels are compiled into the user's own cache folder."""
    return BuildContext(device="cpu", needs=ModelNeeds(), cache_dir=kernel_cache_folder())
