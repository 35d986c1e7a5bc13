"""Does a rehearsal name exactly the kernels that an engine with numbers calls?

Kernels run nowhere here. The engine with numbers has memory of the host in the place of the GPU's,
so addresses, strides and sizes are those of real tensors.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from deepinfer_core.cli import main
from deepinfer_core.config import LoadedSettings, load_settings, resolve_components
from deepinfer_core.config.components import OptionalSlotSettings
from deepinfer_core.engine.drafts.opening import open_stage
from deepinfer_core.engine.kernels import preparing, rehearsal
from deepinfer_core.engine.kernels.preparing import Prepared
from deepinfer_core.engine.kernels.rehearsal import wanted_kernels
from deepinfer_core.engine.memory_plan import plan_memory
from deepinfer_core.engine.model_folder import model_needs, read_config
from deepinfer_core.engine.model_loading import model_parts
from deepinfer_core.engine.page_sizes import BLOCK_TOKENS
from deepinfer_core.engine.readiness import StepSizes, rehearse
from deepinfer_core.engine.runner import ModelRunner
from deepinfer_core.interfaces.component import Properties
from deepinfer_core.interfaces.device import InlineStream
from deepinfer_core.interfaces.drafter import (
    Choose,
    Drafter,
    DrafterCapabilities,
    DraftHost,
    DraftRound,
    Drafts,
)
from deepinfer_core.interfaces.operators.rehearsal import NotedKernels
from deepinfer_core.interfaces.operators.wanted import Rehearsal, WantedKernel
from deepinfer_core.model.builder import build_model
from deepinfer_core.model.caches import allocate_caches
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.plugin import BuildContext, DeviceTarget, ModelNeeds, Resolved
from deepinfer_core.reference.device import build_cpu
from deepinfer_core.reference.promises import PROMISES
from deepinfer_core.testing.byte_checkpoint import make_byte_checkpoint
from deepinfer_core.weights.checkpoint import open_checkpoint
from deepinfer_core.weights.manifest import manifest_of
from deepinfer_nvidia.kernels.launch import TileLangCompiler
from deepinfer_nvidia.sampler.tilelang import TileLangSampler

Case = tuple[Path, LoadedSettings, Resolved]
WithKernels = Callable[..., ModelParts]

OVERRIDES = (
    "device=nvidia",
    "engine.max_num_seqs=3",
    "engine.max_num_batched_tokens=40",
    "engine.max_model_len=300",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    make_byte_checkpoint(folder)
    return folder


@pytest.fixture
def drafter() -> str:
    return "none"


@pytest.fixture
def rule() -> str:
    return "match"


@pytest.fixture
def case(folder: Path, tmp_path: Path, drafter: str, rule: str) -> Case:
    own = [f"model.path={folder}", f"kernels.cache_dir={tmp_path}"]
    own += [f"components.drafter.use={drafter}"]
    if rule == "ratio":
        own += ["speculation.rule=ratio"]
    loaded = load_settings(None, [*OVERRIDES, *own])
    needs = model_needs(read_config(folder, loaded.settings), loaded.settings)
    return folder, loaded, resolve_components(loaded, needs, DeviceTarget(arch="sm_90a")).require()


def rehearsed(case: Case) -> tuple[WantedKernel, ...]:
    folder, loaded, resolved = case
    return wanted_kernels(read_config(folder, loaded.settings), loaded.settings, resolved, {})


class NumberedKernels(NotedKernels):
    """Notes down calls; numbers that later work looks rows up with become the first row."""

    def prepared(self, build: Any, spec: Any, tuning: Any) -> Callable[..., None]:
        return partial(self.call, build, spec, tuning)

    def call(self, build: Any, spec: Any, tuning: Any, /, **tensors: torch.Tensor) -> None:
        super().call(build, spec, tuning, **tensors)
        for name in ("expert_Tk", "index_TL", "row_TC", "token_R"):
            if name in tensors:
                tensors[name].zero_()


class Bare(Drafter):
    """Runs the draft network of a checkpoint."""

    @property
    def properties(self) -> Properties:
        return PROMISES

    @property
    def capabilities(self) -> DrafterCapabilities:
        return DrafterCapabilities(max_drafts=5, law="full", uses_block=True)

    def attach(self, host: DraftHost) -> None:
        self.host = host

    def propose(self, wanted: DraftRound, choose: Choose) -> Drafts:
        assert self.host.block is not None
        token_Qn, _ = self.host.block(wanted, count=self.host.drafts, choose=choose)
        return Drafts(token_Qn=token_Qn)


def called_with_numbers(case: Case, with_kernels: WithKernels) -> set[WantedKernel]:
    folder, loaded, resolved = case
    settings, config = loaded.settings, read_config(folder, loaded.settings)
    noted = Rehearsal()
    compiler = TileLangCompiler("sm_90a", Path(resolved.context.cache_dir) / "nvidia")
    kernels = NumberedKernels(noted, compiler)
    on_cpu = model_parts(resolve_components(load_settings(None, [])).require(), settings)
    parts = replace(
        with_kernels(on_cpu, kernels),
        device=build_cpu(None, BuildContext(device="cpu", needs=ModelNeeds())),
    )
    memory = plan_memory(config, settings, parts.device.memory().total_bytes)
    ids_V = torch.zeros(config.text_config.vocab_size, dtype=torch.int64)
    model = build_model(open_checkpoint(folder), parts, compressed_ids=ids_V)
    caches = allocate_caches(
        config, parts.numerics, parts.codec, parts.device,
        num_blocks=memory.num_blocks, num_slots=memory.num_slots,
        max_backtracking=memory.max_backtracking, block_tokens=BLOCK_TOKENS,
    )  # fmt: skip
    sampler, stage, vocabulary = (
        TileLangSampler(kernels, "cpu"),
        None,
        config.text_config.vocab_size,
    )
    if settings.drafts:
        host = DraftHost(
            drafts=settings.drafts, vocabulary=vocabulary, max_sequences=3, max_tokens=300,
            rule=settings.speculation.rule, torch_device=parts.device.torch_device,
        )  # fmt: skip
        stage = open_stage(Bare(), host, model, caches, sampler)
    runner = ModelRunner(model, caches, sampler, InlineStream(), vocabulary=vocabulary, stage=stage)
    sizes = StepSizes(
        max_rows=40, max_sequences=3, max_tokens=300, block_tokens=BLOCK_TOKENS,
        rows_each=1 + settings.drafts,
    )  # fmt: skip
    rehearse(runner, sizes, records=True)
    return set(noted.wanted)


@pytest.mark.parametrize(
    ("drafter", "rule"), [("none", "match"), ("dspark.block", "match"), ("dspark.block", "ratio")]
)
def test_a_rehearsal_names_the_kernels_that_an_engine_with_numbers_calls(
    case: Case, with_kernels: WithKernels, rule: str
) -> None:
    named, called = set(rehearsed(case)), called_with_numbers(case, with_kernels)
    assert {one.operator for one in named} >= {
        "attention_sparse",
        "gemm_experts",
        "sampler_scan_logits",
    }
    of_ratio = {"sampler_write_laws", "sampler_verify_drafts"}
    assert bool(of_ratio & {one.operator for one in named}) is (rule == "ratio")
    assert named == called


@pytest.mark.parametrize("drafter", ["dspark.block"])
def test_a_draft_network_wants_kernels_of_its_own(case: Case) -> None:
    """Its Markov head has another width than all the model's products."""
    folder, loaded, resolved = case
    components = loaded.settings.components.model_copy(update={"drafter": OptionalSlotSettings()})
    plain = loaded.settings.model_copy(update={"components": components})
    without = wanted_kernels(read_config(folder, plain), plain, resolved, {})
    more = set(rehearsed(case)) - set(without)
    assert {one.operator for one in more} >= {"gemm_dense"}


@pytest.mark.parametrize("graphs", [True, False])
def test_recordings_are_rehearsed_where_they_are_made(
    case: Case, graphs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, loaded, resolved = case
    seen: list[bool] = []
    monkeypatch.setattr(
        rehearsal, "rehearse", lambda runner, sizes, *, records: seen.append(records)
    )
    engine = loaded.settings.engine.model_copy(update={"graphs": graphs})
    settings = loaded.settings.model_copy(update={"engine": engine})
    wanted_kernels(read_config(folder, settings), settings, resolved, {})
    assert seen == [graphs]


def test_weights_that_are_stored_plain_want_other_kernels(case: Case) -> None:
    folder, loaded, resolved = case
    config = read_config(folder, loaded.settings)
    formats = {name: "bfloat16" for name in manifest_of(config).weights if ".experts." in name}
    wanted = wanted_kernels(config, loaded.settings, resolved, formats)
    experts = [one.spec for one in wanted if one.operator == "gemm_experts"]
    assert {spec.weight_format for spec in experts} == {"bfloat16"}


def test_the_command_needs_nothing_of_a_checkpoint_but_its_config(
    case: Case,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """And wants what an engine of the same settings does."""
    folder, _, _ = case
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "config.json").write_bytes((folder / "config.json").read_bytes())
    asked: list[WantedKernel] = []

    def compile_nothing(wanted: tuple[WantedKernel, ...], *others: object) -> Prepared:
        asked.extend(wanted)
        return Prepared(found=wanted, tried=(), jobs=0, elapsed_s=0.0)

    monkeypatch.setattr(preparing, "compile_missing", compile_nothing)
    options = [f"--set={one}" for one in (*OVERRIDES, f"model.path={bare}")]
    cache = f"--set=kernels.cache_dir={tmp_path}"
    assert main(["kernels", "compile", "--arch", "sm_90a", cache, *options]) == 0
    assert set(asked) == set(rehearsed(case))
    said = capfd.readouterr().out
    assert f"folder  {tmp_path}" in said
    assert "sm_90a with 132 cores" in said
    assert ["total", "0", str(len(asked)), "0"] in [line.split() for line in said.splitlines()]
