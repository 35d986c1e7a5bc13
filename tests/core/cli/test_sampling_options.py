"""Options of ``deepinfer generate`` that say how tokens are drawn, and how many answers."""

import argparse
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from deepinfer_core.cli.generation import add_sampling_arguments, sampling_params
from deepinfer_core.engine.sampling_params import SamplingParams

Run = Callable[..., subprocess.CompletedProcess[str]]
GREEDY = ("--temperature", "0", "--max-tokens", "3")


@pytest.fixture
def generate(deepinfer: Run, byte_checkpoint: Path) -> Run:
    """Run the verb with the small checkpoint."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        small = ("--set", "engine.max_model_len=256", "--model", str(byte_checkpoint))
        return deepinfer("generate", *arguments, *small)

    return run


def test_several_answers_come_one_after_the_other(generate: Run, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a"}\n{"prompt": "bc"}\n')
    options = ("--n", "3", "--seed", "7", "--max-tokens", "3")
    done = generate("--prompt-file", str(file), *options, "--json")
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    places = [(one["sample"], one["usage"]["prompt_tokens"]) for one in shown]
    assert places == [(sample, tokens) for tokens in (2, 3) for sample in range(3)]
    alone = json.loads(generate("a", *options[2:], "--json").stdout)
    assert alone["token_ids"] == shown[0]["token_ids"] != shown[1]["token_ids"]
    assert (alone["sample"], alone["seed"]) == (0, 7)
    assert len({one["seed"] for one in shown[:3]}) == 3


def test_a_bias_and_a_penalty_change_what_is_drawn(generate: Run) -> None:
    # Logits of about 90 and 80; halved once it was drawn, the first falls behind.
    options = ("--logit-bias", "50=90", "--logit-bias", "51=80", "--ignore-eos", "--json", *GREEDY)
    plain = json.loads(generate("x", *options).stdout)["token_ids"]
    penalised = json.loads(generate("x", *options, "--repetition-penalty", "2").stdout)["token_ids"]
    assert (plain[:2], penalised[:2]) == ([50, 50], [50, 51])


def test_each_option_becomes_its_own_parameter() -> None:
    parser = argparse.ArgumentParser()
    add_sampling_arguments(parser, max_tokens=5)
    words = "--repetition-penalty 1.5 --frequency-penalty -0.5 --presence-penalty 0.25"
    params = sampling_params(parser.parse_args([*words.split(), "--logit-bias", "7=-2.5"]), n=4)
    assert params == SamplingParams(
        n=4,
        max_tokens=5,
        repetition_penalty=1.5,
        frequency_penalty=-0.5,
        presence_penalty=0.25,
        logit_bias={7: -2.5},
    )
    assert sampling_params(parser.parse_args([])) == SamplingParams(max_tokens=5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--logit-bias", "5"), "--logit-bias is '5'"),
        (("--logit-bias", "a=1"), "--logit-bias is 'a=1'"),
        (("--logit-bias", "5=101"), "logit_bias[5] is 101.0"),
        (("--n", "0"), "n is 0"),
        (("--n", "2", "--stream"), "--stream with --n 2"),
        (("--presence-penalty", "3"), "presence_penalty is 3.0"),
        (("--repetition-penalty", "0"), "repetition_penalty is 0.0"),
    ],
)
def test_wrong_sampling_options_are_refused_before_loading(
    generate: Run, arguments: tuple[str, ...], message: str
) -> None:
    done = generate("x", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"error: {message}" in done.stderr


def test_a_lone_prompt_that_is_refused_is_wrong_usage_for_all_its_answers(generate: Run) -> None:
    done = generate("x", *GREEDY, "--n", "2", "--logit-bias", "999=1")
    assert (done.returncode, done.stdout) == (2, "")
    for sample in (1, 2):
        assert f"error: sample {sample}: token 0 of logit_bias is 999" in done.stderr
