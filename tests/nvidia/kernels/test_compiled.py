"""Does nvcc compile each kernel that is not what it was when it was last compiled?

What was compiled stands in the record, so an unchanged kernel costs no compiler here. ``deepinfer
bench kernels --evidence --record FILE`` puts a changed one there. Without nvcc nothing shows that a
changed kernel compiles, so it fails there rather than passing unseen.
"""

import pytest
from deepinfer_core.testing import evidence
from deepinfer_core.testing.evidence import compiled_words
from deepinfer_core.testing.kernel_record import content_of, entry_of, read_record
from deepinfer_core.testing.kernel_trials import trials
from deepinfer_nvidia.kernels.catalogue import catalogue

CATALOGUE = catalogue()
RECORD = read_record(CATALOGUE.measured)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", CATALOGUE.kernels)
def test_a_kernel_compiles_if_it_is_not_what_was_compiled(kernel: str) -> None:
    _, is_same = entry_of(RECORD, kernel, "compiled", content_of(CATALOGUE, kernel))
    if is_same:
        return
    small = [trial for trial in trials(CATALOGUE, kernel) if trial.case.small]
    words = compiled_words(CATALOGUE, kernel, small)
    assert not words.startswith("no"), f"{kernel} is not what was compiled last: {words}"


def test_a_changed_kernel_fails_where_there_is_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "find_nvcc", lambda: None)
    monkeypatch.setitem(RECORD, "transform_cast", {"compiled": {"content": "of another text"}})
    with pytest.raises((AssertionError, pytest.skip.Exception)) as raised:
        test_a_kernel_compiles_if_it_is_not_what_was_compiled("transform_cast")
    assert "transform_cast is not what was compiled last: no nvcc here" in str(raised.value)
