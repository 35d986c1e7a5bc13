"""What does a plugin author import, and what does the engine call?

A plugin's descriptor module imports the standard library and this package only. Loading this
package costs pluggy and importlib_metadata; it never imports torch.
"""

from deepinfer_core.plugin.context import (
    BuildContext,
    DeviceFacts,
    DeviceTarget,
    ModelNeeds,
    ProbeContext,
    Verdict,
)
from deepinfer_core.plugin.resolved import Pick, Resolved, load
from deepinfer_core.plugin.specs import ComponentSpec, VerbSpec, hookimpl

__all__ = [
    "BuildContext",
    "ComponentSpec",
    "DeviceFacts",
    "DeviceTarget",
    "ModelNeeds",
    "Pick",
    "ProbeContext",
    "Resolved",
    "VerbSpec",
    "Verdict",
    "hookimpl",
    "load",
]
