"""Where is the tiny checkpoint? In this package, as data; nothing heavy is imported.

The folder has the layout of a published checkpoint (``config.json``, ``tokenizer.json``,
safetensors shards with their index); `MODEL_CARD.md` beside it says what the model was trained
on and can do.
"""

from pathlib import Path

__all__ = ["checkpoint_path"]


def checkpoint_path() -> Path:
    """Folder of the checkpoint, to be passed wherever a model folder is expected."""
    return Path(__file__).parent / "checkpoint"
