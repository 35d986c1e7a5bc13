"""Is a safetensors header read rightly, and is every lie in it found?"""

import json
from pathlib import Path

import pytest
import torch
from deepinfer_core.errors import WeightsError
from deepinfer_core.weights.shard import read_shard
from safetensors.torch import save_file


def write(path: Path, header: object, data: bytes = b"", *, length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    path.write_bytes(size.to_bytes(8, "little") + text + data)
    return path


def entry(begin: int, end: int, shape: object = None, dtype: str = "U8") -> dict:
    return {"dtype": dtype, "shape": [end - begin] if shape is None else shape,
            "data_offsets": [begin, end]}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def test_a_file_of_the_safetensors_library_is_read(path):
    tensors = {
        "a": torch.arange(6, dtype=torch.float32).reshape(2, 3),
        "b": torch.ones(4, dtype=torch.bfloat16),
        "c": torch.zeros(3, 5).to(torch.float8_e4m3fn),
        "d": torch.tensor(7.0),
        "e": torch.ones(0, 3),
    }
    save_file(tensors, path, metadata={"format": "pt"})
    shard = read_shard(path)
    assert shard.size_bytes == path.stat().st_size
    content = path.read_bytes()
    for name, tensor in tensors.items():
        place = shard.places[name]
        assert place.tensor.shape == tuple(tensor.shape)
        data = content[place.offset_bytes : place.offset_bytes + place.tensor.nbytes]
        raw = tensor.reshape(-1).view(torch.uint8) if tensor.numel() else torch.empty(0)
        assert data == bytes(raw.to(torch.uint8).tolist())


def test_a_file_without_tensors_is_read(path):
    assert read_shard(write(path, {})).places == {}


def test_a_missing_file_is_named(path):
    with pytest.raises(WeightsError, match=r"model\.safetensors.*No such file"):
        read_shard(path)


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 7, b"\0" * 8, b"\1" + b"\0" * 7 + b"{", b"\xff" * 64]
)
def test_a_file_without_a_header_is_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(WeightsError, match="found a header of"):
        read_shard(path)


@pytest.mark.parametrize(
    "header",
    [
        b"garbage", b"{'a': 1}", b"\xff\xfe\xfd", b'{"a": ', b"[" * 200_000,
        b'{"a": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}, "a": 1}',
    ],
    ids=["text", "quotes", "bytes", "cut off", "deep", "a name twice"],
)  # fmt: skip
def test_a_header_that_is_no_json_is_refused(path, header):
    with pytest.raises(WeightsError, match="header that is not JSON"):
        read_shard(write(path, header))


def test_a_header_that_is_no_object_is_refused(path):
    with pytest.raises(WeightsError, match="not a JSON object"):
        read_shard(write(path, []))


@pytest.mark.parametrize(
    ("bad", "found"),
    [
        (3, "no dtype"),
        ({}, "unknown dtype None"),
        (entry(0, 4, dtype="F7"), "unknown dtype 'F7'"),
        (entry(0, 4, shape=[-4]), "the shape"),
        (entry(0, 4, shape="4"), "the shape"),
        (entry(0, 4, shape=[4.0]), "the shape"),
        (entry(0, 4, shape=[True] * 4), "the shape"),
        (entry(0, 4, shape=[2**40, 2**40]), "the shape"),
        (entry(0, 4, shape=[5]), "4 bytes for a tensor of dtype U8 and shape .5."),
        ({"dtype": "U8", "shape": [4]}, "the offsets None"),
        ({"dtype": "U8", "shape": [4], "data_offsets": [0, 4, 8]}, "the offsets"),
        ({"dtype": "U8", "shape": [4], "data_offsets": [4, 0]}, "the offsets"),
        ({"dtype": "U8", "shape": [4], "data_offsets": [-4, 0]}, "the offsets"),
    ],
)
def test_an_impossible_entry_names_the_tensor(path, bad, found):
    with pytest.raises(WeightsError, match=f"layers.x in model.safetensors, found.*{found}"):
        read_shard(write(path, {"layers.x": bad}, b"data"))


def test_overlapping_tensors_are_refused(path):
    with pytest.raises(WeightsError, match=r"b in .* data at offset 2, expected at 4"):
        read_shard(write(path, {"a": entry(0, 4), "b": entry(2, 6)}, b"123456"))


def test_a_gap_between_tensors_is_refused(path):
    with pytest.raises(WeightsError, match=r"b in .* data at offset 5, expected at 4"):
        read_shard(write(path, {"a": entry(0, 4), "b": entry(5, 6)}, b"123456"))


@pytest.mark.parametrize("missing_bytes", [1, 2, 3, 6])
def test_a_file_that_is_cut_off_names_the_first_tensor_concerned(path, missing_bytes):
    write(path, {"a": entry(0, 4), "b": entry(4, 6)}, b"123456"[: 6 - missing_bytes])
    name = "b" if missing_bytes <= 2 else "a"
    with pytest.raises(WeightsError, match=f"asked for {name} in .*cut off"):
        read_shard(path)


def test_bytes_behind_the_last_tensor_are_refused(path):
    with pytest.raises(WeightsError, match="1 bytes behind the last tensor"):
        read_shard(write(path, {"a": entry(0, 4)}, b"12345"))
