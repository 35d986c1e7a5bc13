"""``deepinfer eval``: logits in a file, rounds of the drafter."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
from deepinfer_core.engine.draft_rounds import draft_rounds, draft_shares
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.scoring import logits

Run = Callable[..., subprocess.CompletedProcess[str]]
IDS = [0, 20, 30, 40, 50]


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens.json"
    file.write_text(json.dumps(IDS))
    return file


@pytest.mark.parametrize(
    ("options", "numerics"),
    [
        ((), {}),
        (("--cache-quantisation", "off"), {"cache_quantisation": False}),
        (
            ("--numerics", "semantic"),
            {
                "compute": "float32",
                "activation_quantisation": False,
                "cache_quantisation": False,
            },
        ),
        (
            ("--numerics", "semantic", "--cache-quantisation", "on"),
            {"compute": "float32", "activation_quantisation": False},
        ),
    ],
)
def test_logits_of_every_position_are_written_in_the_numerics_asked_for(
    deepinfer: Run,
    byte_checkpoint: Path,
    tokens: Path,
    options: tuple[str, ...],
    numerics: dict[str, object],
) -> None:
    out = tokens.with_name("logits.npy")
    files = ("--tokens", str(tokens), "--out", str(out))
    done = deepinfer("eval", "logits", *files, *options, "--model", str(byte_checkpoint))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found = numpy.load(out)
    assert (found.dtype, found.shape) == (numpy.float32, (len(IDS), 288))
    with LLM(byte_checkpoint, numerics=numerics) as llm:
        numpy.testing.assert_array_equal(found, logits(llm, IDS))


def test_draft_prints_tokens_confidences_and_acceptance(
    deepinfer: Run, byte_checkpoint: Path, tokens: Path
) -> None:
    options = ("--tokens", str(tokens), "--rounds", "2", "--json")
    done = deepinfer("eval", "draft", *options, "--model", str(byte_checkpoint))
    shown = json.loads(done.stdout)
    with LLM(byte_checkpoint) as llm:
        wanted = draft_rounds(llm, IDS, 2)
    assert [tuple(item["drafts"]) for item in shown["rounds"]] == [one.drafts for one in wanted]
    assert [tuple(x["confidences"]) for x in shown["rounds"]] == [x.confidences for x in wanted]
    assert shown["accepted_per_round"] == sum(one.accepted for one in wanted) / 2
    assert shown["whole_rounds"] == 2


def test_draft_takes_a_text_and_prints_a_table(deepinfer: Run, byte_checkpoint: Path) -> None:
    done = deepinfer("eval", "draft", "--prompt", "Once", "--model", str(byte_checkpoint))
    assert done.returncode == 0
    assert done.stdout.splitlines()[0].startswith("position  accepted  confidences")


def test_draft_sums_up_the_rounds_of_many_prompts(
    deepinfer: Run, byte_checkpoint: Path, tmp_path: Path
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "Once"}\n{"token_ids": [0, 20, 30]}\n')
    options = ("--prompt-file", str(file), "--rounds", "2", "--model", str(byte_checkpoint))
    shown = json.loads(deepinfer("eval", "draft", *options, "--json").stdout)
    with LLM(byte_checkpoint) as llm:
        wanted = [*draft_rounds(llm, llm.encode("Once"), 2), *draft_rounds(llm, [0, 20, 30], 2)]
    assert [tuple(item["drafts"]) for item in shown["rounds"]] == [one.drafts for one in wanted]
    shares = draft_shares(wanted)
    assert shares is not None
    assert (shown["survived"], shown["expected"]) == ([*shares.survived], [*shares.expected])


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "is not JSON"), ("{}", "is no list of token ids"), ("[1.5]", "is no list of token ids")],
)
def test_a_token_file_that_cannot_be_used_is_named(
    deepinfer: Run, tokens: Path, content: str, message: str
) -> None:
    tokens.write_text(content)
    out = str(tokens.with_name("out.npy"))
    done = deepinfer("eval", "logits", "--tokens", str(tokens), "--out", out)
    assert done.returncode == 2
    assert f"{tokens} {message}" in done.stderr


def test_a_missing_output_folder_is_found_before_the_model_is_loaded(
    deepinfer: Run, tokens: Path
) -> None:
    out = str(tokens.parent / "nowhere" / "out.npy")
    done = deepinfer("eval", "logits", "--tokens", str(tokens), "--out", out, "--model", "/no")
    assert done.returncode == 2
    assert "in a folder that does not exist" in done.stderr


def test_an_output_that_is_a_folder_is_found_before_the_model_is_loaded(
    deepinfer: Run, tokens: Path
) -> None:
    out = str(tokens.parent)
    done = deepinfer("eval", "logits", "--tokens", str(tokens), "--out", out, "--model", "/no")
    assert (done.returncode, done.stderr) == (2, f"error: {out} is a folder\nhint: name a file\n")


@pytest.mark.parametrize(
    "arguments", [(), ("logits",), ("draft",), ("draft", "--prompt", "a", "--rounds", "0")]
)
def test_missing_or_wrong_options_are_wrong_usage(
    deepinfer: Run, arguments: tuple[str, ...]
) -> None:
    done = deepinfer("eval", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
