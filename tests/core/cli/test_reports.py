"""Do the verbs that explain say what is so, for people and for programs?"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
ALONE = {"PLUGINS_AUTOLOAD": "0"}


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_plugins_shows_the_core_and_a_pick_for_each_slot(deepinfer: Run) -> None:
    done = deepinfer("plugins", **ALONE)
    assert done.returncode == 0
    assert ["core", "deepinfer-core", "0.1.0", "loaded"] in [row[:4] for row in rows(done.stdout)]
    shown = rows(done.stdout)
    assert ["attention.decode", "core.cpu", "picked", "10", "compiled", "kernels"] in shown
    assert ["core.reference", "outranked", "0", "score", "0"] in shown


def test_plugins_shows_a_problem_and_is_no_error(deepinfer: Run) -> None:
    done = deepinfer("plugins", "--set", "device=nvidia", **ALONE)
    assert done.returncode == 0
    assert "problem: no loaded plugin offers device 'nvidia'" in done.stdout
    assert '"auto" takes it only with device = "cpu"' in done.stdout


def test_a_plugin_with_damaged_entry_points_is_shown_with_the_reason_and_the_traceback(
    spawn: Run, tmp_path: Path
) -> None:
    info = tmp_path / "acme_dist-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-dist\nVersion: 1.0\n")
    (info / "entry_points.txt").write_bytes(b"\xff[deepinfer.plugins.v1]\nacme = acme\n")
    shown = spawn("plugins", path=tmp_path)
    assert shown.returncode == 0, shown.stderr
    [row] = [row for row in rows(shown.stdout) if row[:1] == ["acme-dist"]]
    assert row[:4] == ["acme-dist", "acme-dist", "1.0", "failed"]
    assert "its entry points cannot be read: UnicodeDecodeError" in shown.stdout
    why = spawn("plugins", "--why", "acme-dist", path=tmp_path)
    assert "Traceback (most recent call last)" in why.stdout


def test_check_says_once_why_several_slots_are_empty(deepinfer: Run) -> None:
    done = deepinfer("check", "--set", "device=cuda", **ALONE)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: nothing")]
    assert len(errors) == 1
    assert "attention.prefill, attention.decode, attention.indexer" in errors[0]
    assert "sampler on device 'cuda': core.cpu: runs on cpu" in errors[0]
    assert 'core.reference: "auto" takes it only with device = "cpu"' in errors[0]


def test_plugins_shows_what_can_be_served(deepinfer: Run) -> None:
    done = deepinfer("plugins", **ALONE)
    assert ["protocol", "core.completions", "usable", "-"] in rows(done.stdout)
    why = deepinfer("plugins", "--why", "core.completions", **ALONE)
    assert why.returncode == 0
    assert ["component", "protocol", "core.completions"] in rows(why.stdout)
    assert why.stdout.splitlines()[-1] == "protocol: usable"
    assert "protocol core.completions" in deepinfer("plugins", "--why", "core", **ALONE).stdout
    data = json.loads(deepinfer("plugins", "--json", **ALONE).stdout)
    [served] = data["served"]
    assert (served["component"], served["state"]) == ("core.completions", "usable")


def test_plugins_gives_the_same_as_data(deepinfer: Run) -> None:
    data = json.loads(deepinfer("plugins", "--json", **ALONE).stdout)
    assert set(data) == {"device", "plugins", "slots", "problems", "warnings", "served"}
    core = next(item for item in data["plugins"] if item["name"] == "core")
    assert (core["state"], core["distribution"]) == ("loaded", "deepinfer-core")
    decode = next(item for item in data["slots"] if item["slot"] == "decode")
    assert decode["picked"] == "core.cpu"
    assert decode["candidates"][0]["properties"]["batch_invariant"] == "always"


@pytest.mark.parametrize("name", ["core", "deepinfer-core"])
def test_why_explains_a_plugin_by_either_name(deepinfer: Run, name: str) -> None:
    done = deepinfer("plugins", "--why", name, **ALONE)
    assert "deepinfer_core.builtin" in done.stdout
    assert "all_to_all core.local" in done.stdout


def test_why_explains_a_component_in_each_slot(deepinfer: Run) -> None:
    done = deepinfer("plugins", "--why", "core.reference", "--set", "device=nvidia", **ALONE)
    assert "deepinfer_core.reference.sampler:build" in done.stdout
    assert "attention.decode: not asked for" in done.stdout


def test_why_of_an_unknown_name_gives_the_nearest(deepinfer: Run) -> None:
    done = deepinfer("plugins", "--why", "core.referense", **ALONE)
    assert done.returncode == 2
    assert "core.reference" in done.stderr


def test_check_passes_on_a_bare_core(deepinfer: Run) -> None:
    done = deepinfer("check", **ALONE)
    assert (done.returncode, done.stderr) == (0, "")
    assert ["transform", "core.cpu", "deepinfer-core", "0.1.0"] in rows(done.stdout)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("device=nvidia", "error: no loaded plugin offers device 'nvidia'"),
        ("components.sampler.use=acme.x", "error: sampler names acme.x"),
        (
            'components.gemm={use="core.reference",options={weights="x"}}',
            "error: components.gemm.options.weights = 'x'",
        ),
        ('plugins.require=["acme>=1"]', "error: plugins.require names acme>=1"),
        ("strict=graph_safe", "does not promise graph_safe"),
        ("engine.sed=1", "error: unknown key engine.sed"),
    ],
)
def test_check_fails_with_status_2_and_the_reason(
    deepinfer: Run, override: str, message: str
) -> None:
    done = deepinfer("check", "--set", override, **ALONE)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_check_says_everything_that_is_wrong(deepinfer: Run) -> None:
    done = deepinfer("check", "--set", "components.sampler.use=a.x",
                     "--set", "components.transform.use=a.y", **ALONE)  # fmt: skip
    assert done.stderr.count("error: ") == 2


def test_check_gives_the_same_as_data(deepinfer: Run) -> None:
    done = deepinfer("check", "--json", "--set", "components.sampler.use=a.x", **ALONE)
    data = json.loads(done.stdout)
    assert done.returncode == 2
    assert data["components"]["picked"]["transform"] == "core.cpu"
    assert data["problems"][0]["code"] == "no_usable_component"


def test_config_shows_every_value_with_its_origin(deepinfer: Run, tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("threads = 2\n")
    done = deepinfer(
        "config", "-c", str(file), "--set", "engine.seed=3", MAX_BACKTRACKING_TOKENS="7"
    )
    found = {row[0]: row[1:] for row in rows(done.stdout)}
    assert found["threads"] == ["2", f"{file}:threads"]
    assert found["engine.seed"] == ["3", "--set", "engine.seed"]
    assert found["engine.max_backtracking_tokens"] == ["7", "DEEPINFER_MAX_BACKTRACKING_TOKENS"]
    assert found["device"] == ["cpu", "default"]


def test_config_gives_the_same_as_data(deepinfer: Run) -> None:
    data = json.loads(deepinfer("config", "--json", DEVICE="acme").stdout)
    device = next(item for item in data if item["key"] == "device")
    origin = {"kind": "environment", "name": "DEEPINFER_DEVICE"}
    assert device == {"key": "device", "value": "acme", "origin": origin}


def test_config_validate_accepts_good_and_refuses_bad(deepinfer: Run) -> None:
    good = deepinfer("config", "validate", "--set", "threads=1")
    assert (good.returncode, good.stdout[:11]) == (0, "valid: 1 of")
    bad = deepinfer("config", "validate", "--set", "threads=0")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert "threads = 0" in bad.stderr


def test_config_schema_is_a_json_schema_that_forbids_unknown_keys(deepinfer: Run) -> None:
    schema = json.loads(deepinfer("config", "schema").stdout)
    assert schema["additionalProperties"] is False
    assert "engine" in schema["properties"]


def test_env_names_versions_platform_and_variables(deepinfer: Run) -> None:
    done = deepinfer("env", HF_MODEL_DIR="/models", XYZZY="1")
    assert done.returncode == 0
    for part in ("deepinfer-core", "torch", "pluggy", "cores", "memory"):
        assert part in done.stdout
    assert ["DEEPINFER_HF_MODEL_DIR", "/models"] in rows(done.stdout)
    assert "unknown environment variable DEEPINFER_XYZZY" in done.stdout


def test_env_gives_the_same_as_data(deepinfer: Run) -> None:
    data = json.loads(deepinfer("env", "--json").stdout)
    core = next(item for item in data["distributions"] if item["name"] == "deepinfer-core")
    assert core["version"] == "0.1.0"
    assert data["machine"]["threads"] >= 1
    assert data["environment"] == []


def test_env_tells_an_editable_installation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from types import SimpleNamespace

    from deepinfer_core.cli.env import _source

    origin = SimpleNamespace(url="file:///src", dir_info=SimpleNamespace(editable=True))
    assert _source(SimpleNamespace(origin=origin)) == "editable file:///src"
    assert _source(SimpleNamespace(origin=SimpleNamespace(url="file:///x.whl"))) == "file:///x.whl"
    assert _source(SimpleNamespace(origin=None)) == "index"
