"""Does the survey of a backend say which share of mistakes its cases notice?"""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from deepinfer_core.interfaces.operators.catalogue import KernelCatalogue
from deepinfer_core.testing import kernel_survey
from deepinfer_core.testing.kernel_survey import main, subjects
from deepinfer_nvidia.kernels.catalogue import catalogue


def only_rope(folder: Path) -> KernelCatalogue:
    whole = catalogue()
    shutil.copy(whole.folder / "transform_rope.py", folder)
    return replace(whole, folder=folder)


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A catalogue of one kernel, as the command line names it."""
    small = only_rope(tmp_path)
    monkeypatch.setattr(kernel_survey, "small_catalogue", lambda: small, raising=False)
    return f"{kernel_survey.__name__}:small_catalogue"


def test_the_command_prints_the_share_of_each_seed(
    named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main([named, "--seeds", "4", "5", "--count", "2"])
    words = capsys.readouterr().out
    assert "seed 4: " in words
    assert "seed 5: " in words


def test_a_kernel_is_judged_with_every_tuning_that_launch_code_chooses(tmp_path: Path) -> None:
    one = only_rope(tmp_path)
    (plain,) = subjects(one, tmp_path, seed=0)
    other = replace(one, also=lambda name, spec: (one.tune(name, spec, 0),))
    (both,) = subjects(other, tmp_path, seed=0)
    assert len(both.checks) == 2 * len(plain.checks)


@pytest.mark.parametrize(
    "name", ["acme_none:catalogue", "deepinfer_core.errors:none", "deepinfer_core.errors:__all__"]
)
def test_what_names_no_catalogue_is_refused_in_words(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name])
    assert ended.value.code == 2
    assert f"'{name}' " in (words := capsys.readouterr().err)
    assert "write module:function" in words
