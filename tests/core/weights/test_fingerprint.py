"""Does the fingerprint tell checkpoints apart, and the full one every byte?"""

import shutil

from deepinfer_core.weights.checkpoint import open_checkpoint
from deepinfer_core.weights.fingerprint import fingerprint
from deepinfer_core.weights.index import open_shards
from deepinfer_core.weights.random_checkpoint import make_random_checkpoint

from tests.core.weights.conftest import edit_header, set_bytes, shard_of


def both(folder):
    checkpoint = open_checkpoint(folder)
    return checkpoint.fingerprint, fingerprint(folder, checkpoint.shards, full=True)


def test_a_copy_has_both_fingerprints(small_checkpoint, damaged):
    assert both(small_checkpoint) == both(damaged)


def test_a_changed_value_changes_the_full_fingerprint_only(small_checkpoint, damaged):
    set_bytes(damaged, "layers.3.ffn.experts.1.w2.weight", 9, b"\x2a")
    quick, full = both(damaged)
    assert quick == both(small_checkpoint)[0]
    assert full != both(small_checkpoint)[1]


def test_other_shards_change_the_quick_fingerprint(tmp_path, small_checkpoint, small_config):
    make_random_checkpoint(tmp_path / "one", small_config, shards=1)
    assert both(tmp_path / "one")[0] != both(small_checkpoint)[0]


def test_another_dtype_in_a_header_changes_the_quick_fingerprint(small_checkpoint, damaged):
    path = shard_of(damaged, "layers.0.attn.wkv.weight")
    edit_header(path, b"F8_E4M3", b"F8_E5M2")
    assert fingerprint(damaged, open_shards(damaged)) != both(small_checkpoint)[0]


def test_another_configuration_changes_the_quick_fingerprint(small_checkpoint, damaged):
    text = (damaged / "config.json").read_text()
    (damaged / "config.json").write_text(
        text.replace('"swiglu_limit": 10.0', '"swiglu_limit": 9.0')
    )
    assert both(damaged)[0] != both(small_checkpoint)[0]


def test_other_files_of_the_folder_do_not_matter(small_checkpoint, damaged):
    shutil.copy(damaged / "tokenizer.json", damaged / "notes.json")
    assert both(damaged) == both(small_checkpoint)
