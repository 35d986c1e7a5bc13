"""Component descriptions, candidates and installed distributions, made up for one test."""

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deepinfer_core.plugin import ComponentSpec
from deepinfer_core.plugin.discovery import Installed
from deepinfer_core.plugin.loading import Offer
from deepinfer_core.plugin.probing import Candidate


@pytest.fixture
def make_spec() -> Callable[..., ComponentSpec]:
    def make(name: str = "acme.fast", **changes: object) -> ComponentSpec:
        fields: dict[str, object] = {
            "kind": "attention",
            "name": name,
            "slots": ("prefill", "decode"),
            "contract": 1,
            "factory": "acme.attention:build",
        }
        return ComponentSpec(**{**fields, **changes})  # type: ignore[arg-type]

    return make


@pytest.fixture
def make_offer(make_spec: Callable[..., ComponentSpec]) -> Callable[..., Offer]:
    def make(name: str = "acme.fast", distribution: str = "", **changes: object) -> Offer:
        vendor = name.partition(".")[0]
        plugin = Installed(vendor, distribution or f"{vendor}-dist", "1.0", f"{vendor}.plugin")
        return Offer(make_spec(name, **changes), plugin)

    return make


@pytest.fixture
def make_candidate(make_offer: Callable[..., Offer]) -> Callable[..., Candidate]:
    def make(
        name: str,
        score: int = 0,
        judgement: str = "usable",
        reason: str = "",
        fix: str = "",
        mendable: bool = False,
        **changes: object,
    ) -> Candidate:
        return Candidate(
            offer=make_offer(name, **changes),
            judgement=judgement,  # type: ignore[arg-type]
            score=score,
            reason=reason,
            fix=fix,
            mendable=mendable,
        )

    return make


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Put a distribution with an entry point and one module on the import path."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))

    def put(
        name: str,
        source: str | None,
        *,
        distribution: str = "",
        version: str = "1.0",
        group: str = "deepinfer.plugins.v1",
        into: Path = folder,
    ) -> Path:
        distribution = distribution or f"{name}-dist"
        info = into / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        )
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {name}_module\n")
        if source is not None:
            (into / f"{name}_module.py").write_text(textwrap.dedent(source))
        return into

    yield put
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
