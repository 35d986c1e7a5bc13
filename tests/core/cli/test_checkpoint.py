"""Does ``deepinfer checkpoint`` show, check and make checkpoints, and fail in one line?"""

import json
import struct
import sys
from importlib import resources

import pytest
from deepinfer_core.cli import main
from deepinfer_core.weights.random_checkpoint import make_random_checkpoint
from deepinfer_core.weights.shard import read_shard
from deepinfer_core.weights.sized_config import config_of_size

SIZE_BYTES = 2_300_000
NORM = "layers.0.attn_norm.weight"


@pytest.fixture
def folder(tmp_path):
    make_random_checkpoint(tmp_path / "checkpoint", config_of_size(SIZE_BYTES), shards=2)
    return tmp_path / "checkpoint"


@pytest.fixture
def released():
    file = resources.files("deepinfer_core.model") / "data" / "deepseek_v41_flash.json"
    with resources.as_file(file) as path:
        yield path


def run(capsys, *arguments):
    """Exit status, standard output and standard error of one command."""
    status = main(["checkpoint", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def set_nan(folder):
    for path in folder.glob("*.safetensors"):
        places = read_shard(path).places
        if NORM in places:
            with path.open("r+b") as file:
                file.seek(places[NORM].offset_bytes)
                file.write(struct.pack("<H", 0x7FC0))


def test_config_only_shows_the_published_counts_and_bytes(capsys, released):
    status, out, _ = run(capsys, "verify", "--config-only", released)
    assert status == 0
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()}
    assert rows["total"] == ["96,085", "510,286,023,000"]
    assert rows["experts"] == ["94,464", "295,997,276,160"]
    assert [rows[name][0] for name in ("layers", "compressor", "indexer", "engram")] == [
        *("1,290", "11", "32", "12")
    ]
    assert [rows[name][0] for name in ("global", "drafter", "vision")] == ["6", "7", "263"]


def test_config_only_gives_the_same_as_data(capsys, released):
    status, out, _ = run(capsys, "verify", "--config-only", "--json", released)
    data = json.loads(out)
    assert (status, data["tensors"], data["bytes"]) == (0, 96_085, 510_286_023_000)
    assert data["groups"]["vision"] == {"tensors": 263, "bytes": 970_506_240}


def test_config_only_reads_a_folder_without_weights(capsys, tmp_path, released):
    (tmp_path / "config.json").write_bytes(released.read_bytes())
    status, out, _ = run(capsys, "verify", "--config-only", tmp_path)
    assert (status, "96,085" in out) == (0, True)


def test_make_random_writes_what_verify_accepts(capsys, tmp_path):
    made = run(
        *(capsys, "make-random", tmp_path / "x", "--size-bytes", SIZE_BYTES),
        *("--shards", 3, "--seed", 7, "--json"),
    )
    data = json.loads(made[1])
    assert (made[0], data["shards"], data["seed"]) == (0, 3, 7)
    assert data["bytes"] <= SIZE_BYTES
    status, out, _ = run(capsys, "verify", tmp_path / "x", "--full", "--json")
    verified = json.loads(out)
    assert status == 0
    assert (verified["bytes"], verified["tensors"]) == (data["bytes"], data["tensors"])
    assert len(verified["full_fingerprint"]) == len(verified["fingerprint"]) == 64


def test_make_random_takes_a_configuration(capsys, tmp_path, folder):
    status, out, _ = run(capsys, "make-random", tmp_path / "x", "--config", folder / "config.json")
    assert (status, out.startswith("wrote ")) == (0, True)
    assert (tmp_path / "x" / "config.json").read_bytes() == (folder / "config.json").read_bytes()


def test_inspect_names_every_weight_as_data(capsys, folder):
    status, out, _ = run(capsys, "inspect", folder, "--json")
    data = json.loads(out)
    weights = {weight["name"]: weight for weight in data["weights"]}
    assert status == 0
    assert weights[NORM]["format"] == "bfloat16"
    assert sum(weight["bytes"] for weight in weights.values()) == data["bytes"]
    assert data["shards"] == 2


def test_inspect_shows_groups_and_formats(capsys, folder):
    status, out, _ = run(capsys, "inspect", folder)
    assert status == 0
    for word in ("fingerprint", "experts", "total", "fp8_32x32", "mxfp4"):
        assert word in out


def test_verify_says_what_it_verified(capsys, folder):
    status, out, _ = run(capsys, "verify", folder)
    assert (status, "readable and finite" in out) == (0, True)


def test_nan_weights_fail_with_the_tensor_in_one_line(capsys, folder):
    set_nan(folder)
    status, out, err = run(capsys, "verify", folder)
    assert (status, out) == (1, "")
    assert err.startswith(f"error: asked for numbers in {NORM}, found NaN")
    assert "Traceback" not in err


@pytest.mark.parametrize("action", ["inspect", "verify"])
@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda path: path.unlink(), "asked for the shard model-00001-of-00002.safetensors"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "cut off"),
        (lambda path: path.write_bytes(b"garbage" * 9), "model-00001-of-00002.safetensors"),
        (lambda path: path.write_bytes(b""), "a header of 0 bytes"),
    ],
    ids=["missing", "truncated", "garbage", "empty"],
)
def test_a_damaged_shard_fails_with_its_name(capsys, folder, action, damage, expected):
    damage(folder / "model-00001-of-00002.safetensors")
    status, out, err = run(capsys, action, folder)
    assert (status, out) == (1, "")
    assert err.startswith("error: ")
    assert expected in err
    assert err.count("\n") == 2  # one line of error, one of hint


@pytest.mark.parametrize("action", [["inspect"], ["verify"], ["verify", "--config-only"]])
@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"DeepseekV41ForCausalLM"', '"LlamaForCausalLM"', "architectures: asked for"),
        ('"deepseek_v41"', '"llama"', "model_type: asked for deepseek_v41, found 'llama'"),
        ('"hidden_act": "silu"', '"hidden_act": "gelu"', "text_config.hidden_act: asked for silu"),
        ('"vocab_size"', '"vocabulary_size"', "text_config.vocab_size is missing"),
        ("{", "", "found no JSON"),
    ],
)
def test_an_unusable_configuration_is_wrong_usage(capsys, folder, action, old, new, expected):
    path = folder / "config.json"
    path.write_text(path.read_text().replace(old, new, 1))
    status, out, err = run(capsys, *action, folder)
    assert (status, out) == (2, "")
    assert expected in err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["burn", "x"],
        ["verify"],
        ["inspect", "nowhere"],
        ["make-random", "x"],
        ["make-random", "x", "--size-bytes", "many"],
        ["make-random", "x", "--size-bytes", "5"],
        ["make-random", "x", "--size-bytes", "2300000", "--shards", "0"],
        ["make-random", "x", "--size-bytes", "2300000", "--seed", "-1"],
        ["make-random", "x", "--config", "nowhere.json"],
        ["make-random", "x", "--config", "a", "--size-bytes", "2300000"],
    ],
)
def test_wrong_usage_exits_with_two(capsys, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("error: ")


@pytest.mark.parametrize("action", ["inspect", "verify"])
def test_a_folder_that_is_missing_is_said_without_importing_torch(capsys, monkeypatch, action):
    monkeypatch.setitem(sys.modules, "torch", None)  # an import fails
    monkeypatch.delitem(sys.modules, "deepinfer_core.weights.checkpoint", raising=False)
    status, out, err = run(capsys, action, "/no/such/folder")
    assert (status, out) == (2, "")
    assert "/no/such/folder/config.json, found No such file" in err
