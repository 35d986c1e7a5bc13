"""Do forty lines make a sampler that is picked by name and fulfils its contract?"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

pytestmark = pytest.mark.wheel

Run = Callable[..., subprocess.CompletedProcess[str]]
DISTRIBUTION = "acme-fresh"

PLUGIN = """\
from deepinfer_core.plugin import ComponentSpec, hookimpl

@hookimpl
def deepinfer_components():
    yield ComponentSpec(
        kind="sampler", name="acme.fresh", slots=("sampler",), contract=1, devices=("cpu",),
        factory="fresh_sampler:build",
        properties={"batch_invariant": "always", "deterministic": "always"})
"""

SAMPLER = """\
import torch
from deepinfer_core.interfaces.component import Plan, Properties
from deepinfer_core.interfaces.sampler import Sampler
from deepinfer_core.reference.logits_rules import adjusted

class Fresh(Sampler):
    properties = Properties(batch_invariant="always", deterministic="always", graph_safe="never")

    def plan(self, spec, max_rows):
        return Plan(max_rows=max_rows)

    def run(self, plan, logits_RV, rows, out):
        adjusted_RV = adjusted(logits_RV.double(), rows)
        for r, raw_V in enumerate(logits_RV.double()):
            kept_V = adjusted_RV[r]
            is_bad_V = raw_V.isnan() | raw_V.isposinf() | (kept_V.amax() == -torch.inf)
            out.invalid_R[r] = is_bad_V.any()
            heat, k = float(rows.temperature_R[r]), int(rows.top_k_R[r])
            sorted_V, order_V = (kept_V / (heat or 1)).sort(descending=True, stable=True)
            p_V, k = sorted_V.softmax(0), (k if k > 0 else len(raw_V)) if heat else 1
            keep_V = (p_V.cumsum(0) - p_V <= rows.top_p_R[r]) | (rows.top_p_R[r] >= 1)
            keep_V &= (torch.arange(len(p_V)) < k) & (p_V >= rows.min_p_R[r] * p_V[0])
            law_V = kept_V.index_copy(0, order_V, sorted_V.where(keep_V, -torch.inf)).log_softmax(0)
            seed = hash((int(rows.seed_R[r]), int(rows.position_R[r]))) % 2**63
            noise_V = torch.rand(len(raw_V), generator=torch.Generator().manual_seed(seed)).log()
            drawn = int((law_V - (-noise_V).log()).argmax())
            token = int(rows.forced_R[r]) if rows.forced_R[r] >= 0 else drawn
            out.token_R[r], out.processed_logprob_R[r] = token, law_V[token]
            out.logprob_R[r] = raw_V.log_softmax(0)[token]
            best_A = raw_V.argsort(descending=True, stable=True)[:out.top_token_RA.shape[1]]
            out.top_token_RA[r], out.top_logprob_RA[r] = best_A, raw_V.log_softmax(0)[best_A]

def build(options, context):
    return Fresh()
"""


@pytest.fixture(scope="module")
def site(
    tmp_path_factory: pytest.TempPathFactory,
    build_wheel: Callable[..., Path],
    install_wheels: Callable[..., None],
) -> Path:
    folder = tmp_path_factory.mktemp("fresh")
    install_wheels(folder, build_wheel(DISTRIBUTION, PLUGIN, others={"fresh_sampler": SAMPLER}))
    return folder


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    file = tmp_path / "settings.toml"
    file.write_text('[components.sampler]\nuse = "acme.fresh"\n')
    return file


def test_it_has_at_most_forty_lines() -> None:
    lines = [line for line in (PLUGIN + SAMPLER).splitlines() if line.strip()]
    assert len(lines) <= 40


def test_it_is_picked_by_name_from_a_toml_file(deepinfer: Run, site: Path, settings: Path) -> None:
    done = deepinfer("check", "-c", str(settings), site=site)
    assert (done.returncode, done.stderr) == (0, "")
    row = ["sampler", "acme.fresh", DISTRIBUTION, "1.0"]
    assert row in [line.split() for line in done.stdout.splitlines()]


def test_it_passes_the_conformance_kit(site: Path, settings: Path, tmp_path: Path) -> None:
    suite = f"""
        from pathlib import Path
        import pytest
        from deepinfer_core.config import load_settings, resolve_components
        from deepinfer_core.plugin import load
        from deepinfer_core.testing.contracts import SamplerContract

        class TestFresh(SamplerContract):
            @pytest.fixture
            def component(self):
                loaded = load_settings(Path({str(settings)!r}), environ={{}})
                component = load(resolve_components(loaded).require(), "sampler")
                assert type(component).__name__ == "Fresh"
                return component
        """
    (tmp_path / "test_suite.py").write_text(dedent(suite))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "."],
        capture_output=True, text=True, cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1",
             "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout
    assert "skipped" not in done.stdout
