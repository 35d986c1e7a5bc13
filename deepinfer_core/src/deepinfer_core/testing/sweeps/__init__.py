"""Does an engine give a request the same bits whatever happens around it?

One class a question. A test module subclasses it and says on which device by fixtures of module
or session scope:

* ``cold_texts``: ``(window_tokens, **text_overrides) -> ColdText``, a text fed to a small model
  without an engine;
* ``make_engine``: ``(model, shape) -> SmallEngine``; for ``DraftsSweep`` with the keywords
  ``drafter`` and ``planner``;
* for ``CompanySweep`` and ``DraftsSweep`` also ``model``, with a window of 16; it may have
  parameters.

So the very same requests run on a CPU and on a device. This package imports pytest, which
``deepinfer-core`` does not install: it belongs to the test environment of whoever runs the sweeps.
"""

from deepinfer_core.testing.sweeps.cached_lengths import CachedLengthsSweep
from deepinfer_core.testing.sweeps.chunk_sizes import ChunkSizesSweep
from deepinfer_core.testing.sweeps.company import CompanySweep
from deepinfer_core.testing.sweeps.drafts import DraftsSweep
from deepinfer_core.testing.sweeps.engines import swept_engines
from deepinfer_core.testing.sweeps.fixtures import ColdTexts, MakeEngine
from deepinfer_core.testing.sweeps.modes import ModesSweep

__all__ = [
    "CachedLengthsSweep",
    "ChunkSizesSweep",
    "ColdTexts",
    "CompanySweep",
    "DraftsSweep",
    "MakeEngine",
    "ModesSweep",
    "swept_engines",
]
