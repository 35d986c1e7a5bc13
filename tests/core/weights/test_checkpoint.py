"""Do the values come back exactly, each read once, and are damaged ones refused?"""

import math
import struct

import pytest
import torch
from deepinfer_core.errors import ConfigError, WeightsError
from deepinfer_core.testing.checkpoints import write_known_checkpoint
from deepinfer_core.testing.tiny import golden_weights, tiny_test_config
from deepinfer_core.weights.checkpoint import open_checkpoint
from safetensors import safe_open

from tests.core.weights.conftest import set_bytes, shard_of

FP8 = "layers.0.attn.wkv.weight"
FP4 = "layers.3.ffn.experts.1.w2.weight"
TABLE = "layers.1.engram.embed.weight"
BF16 = "layers.0.attn_norm.weight"
F32 = "layers.0.hc_attn_fn"
BF16_NAN, F32_NAN = struct.pack("<H", 0x7FC0), struct.pack("<f", math.nan)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def test_every_stored_tensor_equals_what_the_safetensors_library_reads(small_checkpoint):
    checkpoint = open_checkpoint(small_checkpoint)
    compared = 0
    for shard in checkpoint.shards:
        with safe_open(shard.path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  safe_open is no mapping
                assert torch.equal(bits(checkpoint.tensor(name)), bits(file.get_tensor(name))), name
                compared += 1
    assert compared == len(checkpoint.manifest.stored)


@pytest.mark.parametrize(
    ("name", "form"), [(FP8, "fp8_32x32"), (FP4, "mxfp4"), (TABLE, "mxfp8"), (BF16, "bfloat16")]
)
def test_a_weight_comes_with_its_format_and_logical_shape(small_checkpoint, name, form):
    checkpoint = open_checkpoint(small_checkpoint)
    weight = checkpoint.quant(name)
    assert weight.format == form
    assert tuple(weight.shape) == checkpoint.manifest.weights[name].shape
    assert weight.nbytes == checkpoint.found[name].nbytes


@pytest.mark.parametrize("plain", [True, False])
def test_known_weights_come_back(tmp_path, plain):
    config = tiny_test_config()
    weights = golden_weights(config)
    write_known_checkpoint(tmp_path, config, weights, plain=plain, shards=2)
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.config == config
    # Half a step of e2m1 is a quarter of the value, or of the scale's unit for small values, which
    # is at most a sixth of the group's largest number; 1 / 3 of it covers both.
    for name in checkpoint.manifest.weights:
        error = (checkpoint.quant(name).dequantise() - weights[name]).abs().max()
        assert error <= (0.0 if plain else float(weights[name].abs().max()) / 3), name


@pytest.mark.parametrize("rows", [range(0), range(1), range(1, 7), range(1617, 1618), range(1618)])
def test_a_table_is_read_by_rows(small_checkpoint, rows):
    checkpoint = open_checkpoint(small_checkpoint)
    whole, part = checkpoint.quant(TABLE), checkpoint.quant(TABLE, rows)
    assert torch.equal(bits(part.data), bits(whole.data[rows.start : rows.stop]))
    assert torch.equal(part.scale, whole.scale[rows.start : rows.stop])


@pytest.mark.parametrize("rows", [range(-1, 1), range(1618, 1619), range(0, 4, 2)])
def test_rows_outside_a_table_are_refused(small_checkpoint, rows):
    with pytest.raises(WeightsError, match=f"of {TABLE}, found shape"):
        open_checkpoint(small_checkpoint).quant(TABLE, rows)


def test_rows_of_a_weight_whose_scales_span_rows_are_refused(small_checkpoint):
    with pytest.raises(WeightsError, match="fp8_32x32"):
        open_checkpoint(small_checkpoint).quant(FP8, range(1))


@pytest.mark.parametrize("name", ["nothing", "norm.scale", "layers.0.attn.wkv", ""])
@pytest.mark.parametrize("how", ["tensor", "quant"])
def test_an_unknown_name_is_refused(small_checkpoint, name, how):
    with pytest.raises(WeightsError, match=f"asked for {name}, found no such tensor"):
        getattr(open_checkpoint(small_checkpoint), how)(name)


@pytest.mark.parametrize(
    ("name", "offset", "value"),
    [
        (FP8, 100, b"\x7f"),
        (FP8, 0, b"\xff"),
        (BF16, 20, BF16_NAN),
        (BF16, 0, struct.pack("<H", 0xFFC1)),
        (F32, 400, F32_NAN),
        (FP8.replace("weight", "scale"), 1, b"\xff"),
        (FP4.replace("weight", "scale"), 3, b"\xff"),
    ],
)
def test_nan_is_refused_with_the_name_of_the_tensor(damaged, name, offset, value):
    set_bytes(damaged, name, offset, value)
    checkpoint = open_checkpoint(damaged)
    for read in (lambda: checkpoint.tensor(name), checkpoint.scan):
        with pytest.raises(WeightsError, match=f"{name}, found NaN in model-"):
            read()


@pytest.mark.parametrize("plain", [False, True])
def test_a_mapped_table_equals_the_one_that_is_read(tmp_path, plain):
    config = tiny_test_config()
    write_known_checkpoint(tmp_path, config, golden_weights(config), plain=plain)
    checkpoint = open_checkpoint(tmp_path)
    read, mapped = checkpoint.quant(TABLE), checkpoint.table(TABLE)
    assert (mapped.format, mapped.shape) == (read.format, read.shape)
    assert torch.equal(bits(mapped.data), bits(read.data))
    assert plain or torch.equal(mapped.scale, read.scale)


def test_nan_in_a_table_is_refused_before_it_is_mapped(damaged):
    set_bytes(damaged, TABLE, 5, b"\x7f")
    with pytest.raises(WeightsError, match=f"{TABLE}, found NaN"):
        open_checkpoint(damaged).table(TABLE)


def test_a_mapped_table_that_vanished_is_refused(damaged):
    checkpoint = open_checkpoint(damaged)
    shard_of(damaged, TABLE).unlink()
    with pytest.raises(WeightsError, match=r"layers\.1\.engram\.embed\.\w+ .*No such file"):
        checkpoint.table(TABLE)


def test_nan_in_an_expert_is_refused_when_the_stack_is_read(damaged):
    set_bytes(damaged, FP4.replace("weight", "scale"), 0, b"\xff")
    with pytest.raises(WeightsError, match=r"layers\.3\.ffn\.experts\.1\.w2\.scale, found NaN"):
        open_checkpoint(damaged).experts("layers.3.ffn.experts")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (F32, struct.pack("<f", math.inf)),
        (F32, struct.pack("<f", -math.inf)),
        (BF16, struct.pack("<H", 0x7F80)),
        (BF16, struct.pack("<H", 0xFF80)),
    ],
)
def test_infinite_values_are_refused_with_the_name_of_the_tensor(damaged, name, value):
    set_bytes(damaged, name, 40, value)
    checkpoint = open_checkpoint(damaged)
    for read in (lambda: checkpoint.tensor(name), checkpoint.scan):
        with pytest.raises(WeightsError, match=f"{name}, found an infinite value in model-"):
            read()


def test_the_largest_numbers_and_every_four_bit_code_are_accepted(damaged):
    set_bytes(damaged, F32, 0, struct.pack("<I", 0x7F7FFFFF))
    set_bytes(damaged, BF16, 0, struct.pack("<H", 0xFF7F))
    set_bytes(damaged, FP4, 0, bytes(range(256)))
    open_checkpoint(damaged).scan()


def test_a_file_that_shrinks_after_opening_is_refused(damaged):
    checkpoint = open_checkpoint(damaged)
    path = shard_of(damaged, FP8)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(WeightsError, match=f"data of {FP8} .*the end of the file at byte"):
        checkpoint.tensor(FP8)


def test_a_file_that_vanishes_after_opening_is_refused(damaged):
    checkpoint = open_checkpoint(damaged)
    shard_of(damaged, FP8).unlink()
    with pytest.raises(WeightsError, match=f"data of {FP8} .*No such file"):
        checkpoint.tensor(FP8)


def test_a_folder_without_configuration_is_refused(damaged):
    (damaged / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"config\.json"):
        open_checkpoint(damaged)


def test_progress_counts_every_byte_once_and_never_falls(small_checkpoint):
    events = []
    checkpoint = open_checkpoint(small_checkpoint, progress=events.append)
    for name in checkpoint.manifest.weights:
        checkpoint.quant(name)
    assert events[0].phase == "headers"
    done = [event.bytes_done for event in events if event.phase == "tensors"]
    assert done == sorted(done)
    assert done[-1] == checkpoint.nbytes == events[-1].bytes_total


def test_an_exception_of_the_listener_stops_the_reading(small_checkpoint):
    def interrupt(event):
        if event.phase == "tensors":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_checkpoint(small_checkpoint, progress=interrupt).scan()
