"""Does every way to fail end in one line, a hint and the right status?"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from deepinfer_core.cli import verbs

from deepinfer_core import cli, errors

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], list[str]]:
    """Arguments that run a verb which raises."""

    def arrange(error: BaseException) -> list[str]:
        def run(args: object) -> int:
            raise error

        module = SimpleNamespace(add_arguments=lambda parser: None, run=run)
        monkeypatch.setattr(verbs, "VERBS", {"fail": verbs.Verb("failing", "")})
        monkeypatch.setattr(verbs, "import_module", lambda name: module)
        return ["fail"]

    return arrange


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.ConfigError("no", hint="do"), 2),
        (errors.NoUsableComponent("no", hint="do"), 2),
        (errors.RequestError("no", hint="do"), 2),
        (errors.PluginFailed("no", hint="do"), 1),
        (errors.VersionSkew("no", hint="do"), 1),
        (errors.WeightsError("no", hint="do"), 1),
        (errors.EngineError("no", hint="do"), 1),
    ],
)
def test_a_known_failure_is_one_line_and_a_hint(
    failing: Callable[[BaseException], list[str]],
    capsys: pytest.CaptureFixture[str],
    error: errors.DeepInferError,
    status: int,
) -> None:
    assert cli.main(failing(error)) == status
    captured = capsys.readouterr()
    assert captured.err == "error: no\nhint: do\n"
    assert captured.out == ""


def test_without_a_hint_there_is_no_hint_line(
    failing: Callable[[BaseException], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(failing(errors.EngineError("two\nlines")))
    assert capsys.readouterr().err == "error: two lines\n"


def test_a_defect_is_one_line_that_says_how_to_see_more(
    failing: Callable[[BaseException], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(failing(KeyError("deep"))) == 1
    captured = capsys.readouterr().err
    assert captured.startswith("error: unexpected KeyError: 'deep'\n")
    assert "deepinfer --traceback fail" in captured


@pytest.mark.parametrize("error", [KeyError("x"), errors.ConfigError("x"), OSError(5, "x")])
def test_a_traceback_can_be_asked_for(
    failing: Callable[[BaseException], list[str]], error: Exception
) -> None:
    with pytest.raises(type(error)):
        cli.main(["--traceback", *failing(error)])


def test_a_failed_read_names_the_file(
    failing: Callable[[BaseException], list[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cli, "_silence_stdout", lambda: None)
    assert cli.main(failing(FileNotFoundError(2, "No such file", "a.txt"))) == 1
    assert capsys.readouterr().err == "error: No such file: a.txt\n"


def test_an_interrupt_is_one_line_and_130(
    failing: Callable[[BaseException], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(failing(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == "error: interrupted\n"


def test_an_interrupt_from_outside_ends_the_process_without_a_traceback(tmp_path: Path) -> None:
    started = tmp_path / "started"
    code = (
        "import sys, time, pathlib; from deepinfer_core import cli; from deepinfer_core.cli import"
        f" env\ndef run(args):\n    pathlib.Path({str(started)!r}).touch()\n    time.sleep(60)\n"
        "env.run = run; sys.exit(cli.main(['env']))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    while not started.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert stderr == "error: interrupted\n"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ((), "deepinfer --help"),
        (("plugin",), "did you mean plugins?"),
        (("xyzzy",), "deepinfer --help"),
        (("--config",), "deepinfer VERB [options]"),
        (("config", "--se", "engine.seed=1"), "deepinfer config --help"),
        (("generate", "--modle=x", "--tempratur=0"), "did you mean --model, --temperature?"),
        (("generate", "--xyzzy"), "deepinfer generate --help"),
        (("bench", "throughputt", "--set"), "deepinfer bench --help"),
        (("bench", "latency", "--input-length", "4"), "did you mean --input-len?"),
        (("bench", "latency", "--num-prompts", "1"), "deepinfer bench --help"),
        (("config", "shwo"), "deepinfer config --help"),
        (("plugins", "--json", "--why", "core"), "deepinfer plugins --help"),
        (("check", "extra"), "deepinfer check --help"),
    ],
)
def test_wrong_usage_is_status_2_with_a_hint(
    deepinfer: Run, arguments: tuple[str, ...], hint: str
) -> None:
    done = deepinfer(*arguments, PLUGINS_AUTOLOAD="0")
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("hint: ")
    assert hint in lines[1]
    assert len(lines) == 2
    assert done.stdout == ""


def test_a_verb_can_be_asked_for_help(deepinfer: Run) -> None:
    done = deepinfer("check", "--help")
    assert done.returncode == 0
    assert "--set PATH=VALUE" in done.stdout


def test_a_reader_that_leaves_early_ends_the_command_without_a_word() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "deepinfer_core", "config"],
        stdout=write, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_closed_standard_output_is_an_error() -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m deepinfer_core config >&-"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "error: standard output is closed\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device /dev/full")
def test_a_full_disk_is_an_error() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "deepinfer_core", "config"],
            stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "error: No space left on device\n"


def test_a_closed_standard_error_changes_no_status() -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m deepinfer_core xyzzy 2>&-"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
