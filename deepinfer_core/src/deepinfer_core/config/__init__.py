"""What did the user ask for, and where does each value come from?

``load_settings`` is the door. Loading this package costs pydantic; it never imports torch.
"""

from deepinfer_core.config.checkpoints import checkpoint_folder
from deepinfer_core.config.loading import LoadedSettings, load_settings
from deepinfer_core.config.origins import Origin
from deepinfer_core.config.resolution import resolve_components
from deepinfer_core.config.settings import Settings

__all__ = [
    "LoadedSettings",
    "Origin",
    "Settings",
    "checkpoint_folder",
    "load_settings",
    "resolve_components",
]
