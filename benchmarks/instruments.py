"""What do the measuring devices of an engine cost a step?

Times ``Instruments`` alone, with a step of 256 sequences that each draw a token, most of them after
a token of the step before and some after one of an earlier step. The bound is 3 % of the
millisecond that scheduler and outputs may take in such a step.
"""

import timeit
from collections.abc import Callable

from deepinfer_core.engine.instruments import Instruments, Readings, StepFacts
from deepinfer_core.engine.outputs import Timeline, Usage
from deepinfer_core.telemetry.registry import exposition
from record import figure, options, write

HELD = Readings(256, 3, 100, 5, 7, 256, 0, 20)
STEP = StepFacts("decode", 0, 256, 100.0, 0.02, 3e-4, 0.018, 4e-4)
USAGE = Usage(prompt_tokens=100, completion_tokens=50)
TIMES = Timeline(arrived_s=1.0, scheduled_s=2.0, prefilled_s=3.0, first_token_s=4.0, finished_s=5.0)
BOUND_US = 30.0


def fastest_us(work: Callable[[], object], calls: int) -> float:
    """The least time of a call in seven series: what disturbs a series only adds."""
    return round(min(timeit.repeat(work, number=calls, repeat=7)) / calls * 1e6, 2)


def main() -> None:
    """Measure and store."""
    args = options(__doc__).parse_args()
    instruments = Instruments(
        lambda: HELD, version="1", model="m", statistics_interval_s=3600.0, clock_s=lambda: 0.0
    )
    registry = instruments.registry
    step = STEP._replace(
        previous_tokens_s=[99.98] * 240 + [99.96] * 8, first_tokens_s=[0.1] * 8, queued_s=[0.05] * 8
    )
    plain = STEP._replace(previous_tokens_s=[99.98] * 256)

    def request() -> None:
        instruments.arrived()
        instruments.finished("stop", USAGE, TIMES)

    eventful_us = fastest_us(lambda: instruments.stepped(step), 500)
    figures = [
        figure(
            "instruments.step", eventful_us, "us",
            bound=BOUND_US, ratio=round(eventful_us / BOUND_US, 3), sequences=256,
            plain_decode_us=fastest_us(lambda: instruments.stepped(plain), 500),
            without_latencies_us=fastest_us(lambda: instruments.stepped(STEP), 500),
        ),
        figure(
            "instruments.request", fastest_us(request, 500), "us",
        ),
        figure("instruments.reading", fastest_us(instruments.board.read, 100), "us"),
        figure("instruments.text", fastest_us(lambda: exposition(registry), 20), "us"),
    ]  # fmt: skip
    write("instruments.json", figures, is_record=args.record)


if __name__ == "__main__":
    main()
