"""Can whatever an error says be shown and sent?"""

import pytest
from deepinfer_core.errors import DeepInferError, RequestError


@pytest.mark.parametrize("kind", [DeepInferError, RequestError])
def test_half_of_a_surrogate_pair_is_told_by_its_escape(kind: type[DeepInferError]) -> None:
    error = kind("no type in #/properties/\ud800", hint="not \udfffé")
    assert (error.message, error.hint) == (r"no type in #/properties/\ud800", r"not \udfffé")
    assert str(error).encode() == rb"no type in #/properties/\ud800 (not \udfff" + "é)".encode()
    assert error.args == (error.message,)
