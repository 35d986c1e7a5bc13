"""Does a worker build exactly what its parent resolved?"""

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import importlib_metadata
import pytest
from deepinfer_core.errors import NotSupported, NoUsableComponent, PluginFailed, VersionSkew
from deepinfer_core.plugin import BuildContext, ComponentSpec, ModelNeeds, Pick, Resolved, load
from deepinfer_core.plugin import resolved as module

Install = Callable[..., Path]

COMPONENTS = """
    from pydantic import BaseModel, ConfigDict, Field, model_validator
    from deepinfer_core.errors import NotSupported

    class Options(BaseModel):
        size: int = 3

    class Welcoming(BaseModel):
        model_config = ConfigDict(extra="allow")
        size: int = 3

    class Renaming(BaseModel):
        size: int = Field(default=3, alias="length")

        @model_validator(mode="before")
        @classmethod
        def old_name(cls, values):
            values = dict(values)
            if "breadth" in values:
                values["length"] = values.pop("breadth")
            return values

    class Broken:
        @staticmethod
        def model_validate(values): raise RuntimeError("schema")

    class Leaving:
        @staticmethod
        def model_validate(values): raise SystemExit(3)

    class Thing:
        def __init__(self, options, context):
            self.options, self.context = options, context

    def build(options, context): return Thing(options, context)
    def wrong(options, context): return 7
    def broken(options, context): raise KeyError("deep")
    def leaves(options, context): raise SystemExit(2)
    def lacks(options, context): raise NotSupported("no such width")
"""


@pytest.fixture
def make(
    install: Install, make_spec: Callable[..., ComponentSpec], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Resolved]:
    """Two slots of attention and one sampler, filled by components of one module."""
    install("acme", COMPONENTS, group="some.other")
    places = (("attention", "prefill"), ("attention", "decode"), ("sampler", "sampler"))
    monkeypatch.setattr(module, "INTERFACES", dict.fromkeys(places, "acme_module:Thing"))

    def resolved(
        factory: str = "build", options: str = "", settings: dict[str, object] | None = None
    ) -> Resolved:
        picks = tuple(
            Pick(
                kind=kind,
                slot=slot,
                spec=make_spec(
                    kind=kind,
                    factory=f"acme_module:{factory}",
                    options=options and f"acme_module:{options}",
                ),
                settings=settings or {},
                distribution="acme-dist",
            )
            for kind, slot in places
        )
        context = BuildContext(device="cpu", needs=ModelNeeds(hidden_width=64), strict=("x",))
        return Resolved(context=context, picks=picks, distributions=(("acme-dist", "1.0"),))

    return resolved


def test_slots_of_one_component_share_one_object(make: Callable[..., Resolved]) -> None:
    resolved = make()
    assert load(resolved, "attention", "prefill") is load(resolved, "attention", "decode")


def test_kinds_do_not_share_objects(make: Callable[..., Resolved]) -> None:
    resolved = make()
    assert load(resolved, "attention", "decode") is not load(resolved, "sampler")


def test_slots_with_other_options_do_not_share_an_object(make: Callable[..., Resolved]) -> None:
    resolved = make(options="Options")
    first, second, third = resolved.picks
    picks = (replace(first, settings={"size": 8}), second, third)
    resolved = replace(resolved, picks=picks)
    assert load(resolved, "attention", "prefill").options.size == 8
    assert load(resolved, "attention", "decode").options.size == 3


def test_two_resolutions_share_nothing(make: Callable[..., Resolved]) -> None:
    assert load(make(), "sampler") is not load(make(), "sampler")


def test_a_factory_gets_its_options_and_its_context(make: Callable[..., Resolved]) -> None:
    resolved = make(options="Options", settings={"size": 5})
    thing = load(resolved, "sampler")
    assert thing.options.size == 5
    assert thing.context == resolved.context


def test_a_component_without_a_schema_gets_no_options(make: Callable[..., Resolved]) -> None:
    assert load(make(), "sampler").options is None


def test_a_pickle_carries_the_choice_and_no_built_object(make: Callable[..., Resolved]) -> None:
    resolved = make()
    built = load(resolved, "sampler")
    copy = pickle.loads(pickle.dumps(resolved))
    assert copy == resolved
    assert load(copy, "sampler") is not built


def test_an_option_that_the_schema_does_not_name_is_refused(make: Callable[..., Resolved]) -> None:
    resolved = make(options="Options", settings={"size": 5, "sise": 6})
    with pytest.raises(PluginFailed, match=r"sise\s+Extra inputs are not permitted"):
        load(resolved, "sampler")


def test_a_schema_that_takes_any_option_gets_it(make: Callable[..., Resolved]) -> None:
    thing = load(make(options="Welcoming", settings={"size": 5, "more": 6}), "sampler")
    assert (thing.options.size, thing.options.more) == (5, 6)


@pytest.mark.parametrize("name", ["length", "breadth"])
def test_an_alias_and_an_old_name_that_the_schema_renames_are_known(
    make: Callable[..., Resolved], name: str
) -> None:
    assert load(make(options="Renaming", settings={name: 5}), "sampler").options.size == 5


def test_options_are_an_instance_of_the_schema_itself(make: Callable[..., Resolved]) -> None:
    thing = load(make(options="Options", settings={"size": 5}), "sampler")
    assert type(thing.options).__qualname__ == "Options"
    assert type(thing.options).__mro__[1].__name__ == "BaseModel"


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("absent", "AttributeError"),
        ("broken", "KeyError: 'deep'"),
        ("leaves", "SystemExit: 2"),
        ("wrong", "needs a Thing, acme_module:wrong returned int"),
    ],
)
def test_a_factory_that_breaks_is_a_plugin_failure_with_its_cause(
    make: Callable[..., Resolved], factory: str, message: str
) -> None:
    with pytest.raises(PluginFailed, match=message):
        load(make(factory), "sampler")


@pytest.mark.parametrize(
    ("options", "cause"),
    [("Broken", RuntimeError), ("Leaving", SystemExit), ("Thing", AttributeError)],
)
def test_a_schema_that_breaks_is_a_plugin_failure_with_its_cause(
    make: Callable[..., Resolved], options: str, cause: type[BaseException]
) -> None:
    with pytest.raises(PluginFailed, match=f"options schema acme_module:{options}") as caught:
        load(make(options=options), "sampler")
    assert isinstance(caught.value.__cause__, cause)


def test_a_factory_may_raise_the_projects_own_errors(make: Callable[..., Resolved]) -> None:
    with pytest.raises(NotSupported, match="no such width"):
        load(make("lacks"), "sampler")


def test_a_slot_that_does_not_exist_is_an_error_that_lists_the_slots(
    make: Callable[..., Resolved],
) -> None:
    with pytest.raises(NoUsableComponent) as caught:
        load(make(), "attention", "encode")
    assert "attention.encode" in caught.value.message
    assert "attention.decode" in caught.value.hint


def test_equal_versions_pass(make: Callable[..., Resolved]) -> None:
    version = importlib_metadata.version("deepinfer-core")
    replace(make(), distributions=(("deepinfer-core", version),)).verify_versions()


@pytest.mark.parametrize(
    ("name", "version", "found"),
    [("deepinfer-core", "99.0", "0.1.0"), ("acme-absent", "1.0", "nothing")],
)
def test_another_or_a_missing_version_is_skew(
    make: Callable[..., Resolved], name: str, version: str, found: str
) -> None:
    with pytest.raises(VersionSkew, match=f"{name} {version} was resolved.*{found}"):
        replace(make(), distributions=((name, version),)).verify_versions()
