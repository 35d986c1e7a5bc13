"""What can be set about the drafter? ``components.drafter.options`` of a configuration."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["DsparkOptions"]


class DsparkOptions(BaseModel):
    """Options of ``dspark.block``."""

    model_config = ConfigDict(extra="forbid")

    calibration: Path | None = Field(
        default=None,
        description="table of temperatures that `deepinfer calibrate` wrote; "
        "None: those of the settings or the checkpoint",
    )
    record: Path | None = Field(
        default=None,
        description="ordinary file that what became of drafts is appended to, for "
        "`deepinfer calibrate`",
    )
    curve_ttl_s: float = Field(
        default=604_800.0,
        ge=0,
        description="how long measured step times are used again by engines that differ in nothing "
        "that matters; 0: measure at every start",
    )
