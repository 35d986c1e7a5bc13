"""Which component does the user want in each slot, and with which options?

Also the option schemas of the core's own components; a plugin keeps its schemas to itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from deepinfer_core.config.pydantic_start import start_pydantic
from deepinfer_core.interfaces.kinds import ALL_SLOTS

__all__ = [
    "AttentionSettings",
    "ComponentsSettings",
    "GemmSettings",
    "NgramOptions",
    "OptionalSlotSettings",
    "ReferenceGemmOptions",
    "SlotSettings",
]

start_pydantic()


class Section(BaseModel):
    """A table of the configuration: unknown keys are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: object, info: ValidationInfo) -> object:
        """Refuse ``true`` for 1; take the ``false`` that YAML makes of a bare ``off`` back."""
        assert info.field_name is not None
        annotation = cls.model_fields[info.field_name].annotation
        allowed = (annotation, *get_args(annotation))
        if value is False and "off" in allowed:
            return "off"
        if isinstance(value, bool) and bool not in allowed:
            raise ValueError(f"{str(value).lower()} is neither a number nor a name")
        return value


class ReferenceGemmOptions(Section):
    """Options of gemm ``core.reference``.

    Attributes:
        weights: ``widened`` keeps weights in the compute dtype, fast and large; ``stored`` keeps
            them as the checkpoint has them and widens them in each call.
    """

    weights: Literal["widened", "stored"] = "widened"


class NgramOptions(Section):
    """Options of drafter ``core.ngram``.

    Attributes:
        shortest: least number of tokens at the end of a text that must stand earlier in it too.
        longest: most that are compared; longer ones are preferred up to here.
        searched_tokens: how far back they are looked for.
    """

    shortest: int = Field(default=2, ge=1, le=64)
    longest: int = Field(default=4, ge=1, le=64)
    searched_tokens: int = Field(default=8192, ge=2, le=1 << 20)

    @model_validator(mode="after")
    def _shortest_is_no_longer(self) -> Self:
        if self.shortest > self.longest:
            raise ValueError(f"shortest is {self.shortest}, above longest {self.longest}")
        return self


def _order(value: object) -> object:
    """A list names the candidates in order; an empty or repeating one orders nothing."""
    if value == "":
        raise ValueError('expected "auto", a component or a list of components')
    if isinstance(value, list | tuple):
        if not value:
            raise ValueError("a list of components needs at least one name")
        if len(set(map(str, value))) != len(value):
            raise ValueError("a component is named twice")
        for word in ("auto", "none"):
            if word in value:
                raise ValueError(f'"{word}" stands alone; a list is the only fallback')
    return value


def _filled(value: object) -> object:
    if value == "none":
        raise ValueError('the engine needs this component; "none" is for optional ones')
    return value


OptionalUse = Annotated[str | tuple[str, ...], BeforeValidator(_order)]
Use = Annotated[OptionalUse, BeforeValidator(_filled)]


class SlotSettings(Section):
    """Choice for one slot.

    Attributes:
        use: ``auto``, a component, or a list of components in order of preference.
        options: option values of the component that is picked.
    """

    use: Use = "auto"
    options: dict[str, Any] = Field(default_factory=dict)


class OptionalSlotSettings(SlotSettings):
    """Choice for a slot that may stay empty.

    Attributes:
        use: ``none``, or as in any slot.
        options: option values of the component that is picked.
    """

    use: OptionalUse = "none"

    @model_validator(mode="after")
    def _options_are_for_someone(self) -> Self:
        if self.options and self.use == "none":
            raise ValueError('options are given, but no component: name one in "use"')
        return self


class AttentionSettings(SlotSettings):
    """Choice for all slots of attention, and for single ones."""

    prefill: SlotSettings | None = None
    decode: SlotSettings | None = None
    indexer: SlotSettings | None = None
    cache_codec: SlotSettings | None = None


class GemmSettings(SlotSettings):
    """Choice for both slots of gemm, and for single ones."""

    dense: SlotSettings | None = None
    grouped: SlotSettings | None = None


class ComponentsSettings(Section):
    """Choice for every kind."""

    device: SlotSettings = SlotSettings()
    attention: AttentionSettings = AttentionSettings()
    gemm: GemmSettings = GemmSettings()
    transform: SlotSettings = SlotSettings()
    all_to_all: SlotSettings = SlotSettings()
    sampler: SlotSettings = SlotSettings()
    drafter: OptionalSlotSettings = OptionalSlotSettings()
    grammar: OptionalSlotSettings = OptionalSlotSettings()
    kv_store: OptionalSlotSettings = OptionalSlotSettings()

    def chosen(self, kind: str, slot: str) -> tuple[SlotSettings, bool]:
        """The setting that holds for a slot, and whether it was made for that very slot.

        A slot that names its own component starts from no options; one that only adds options
        keeps the component of its kind.
        """
        of_kind: SlotSettings = getattr(self, kind)
        own: SlotSettings | None = None if slot == kind else getattr(of_kind, slot)
        if own is None:
            # The only slot of a kind is meant by name; several slots take what fits them.
            return of_kind, len(ALL_SLOTS[kind]) == 1
        if "use" in own.model_fields_set:
            return own, True
        options: Mapping[str, Any] = {**of_kind.options, **own.options}
        return SlotSettings(use=of_kind.use, options=dict(options)), False
