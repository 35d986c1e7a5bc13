"""Does a survey come to its end, whatever loads were asked for?"""

from dataclasses import replace

from deepinfer_core.bench.layers.measuring import measure_layers
from deepinfer_core.bench.layers.scales import SCALES
from deepinfer_core.config import load_settings
from deepinfer_core.telemetry.progress import ProgressStream


def test_one_sequence_behind_as_many_tokens_as_a_step_has_rows() -> None:
    scale = replace(
        SCALES["small"](),
        prompts=(16,),
        chunk=128,
        sequences=(1,),
        contexts=(128,),
        rows=(1,),
    )
    result = measure_layers(scale, load_settings(None, ["device=cpu"]), ProgressStream())
    assert len(result.measured) == 2


def test_the_engine_has_as_many_requests_as_are_wanted_or_as_the_largest_load_up_to_64() -> None:
    scale = replace(SCALES["small"](), sequences=(1, 8, 64, 256))
    assert scale.traced == 64
    assert replace(scale, profiled=1).traced == 1
