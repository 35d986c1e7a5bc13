"""DeepInfer's hardware-neutral core: what is its version, and where are users' names?

Only the version and lazy names live here, so that ``import deepinfer_core`` loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepinfer_core.engine.async_llm import AsyncLLM
    from deepinfer_core.engine.llm import LLM
    from deepinfer_core.engine.outputs import Completion
    from deepinfer_core.engine.request_options import RequestOptions
    from deepinfer_core.engine.sampling_params import SamplingParams

__all__ = ["LLM", "AsyncLLM", "Completion", "RequestOptions", "SamplingParams", "__version__"]

__version__ = "0.1.0"

_LAZY = {
    "LLM": "deepinfer_core.engine.llm",
    "AsyncLLM": "deepinfer_core.engine.async_llm",
    "Completion": "deepinfer_core.engine.outputs",
    "RequestOptions": "deepinfer_core.engine.request_options",
    "SamplingParams": "deepinfer_core.engine.sampling_params",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
