"""How does DSpark draft? With the draft block of the checkpoint, and with confidences made true.

The block runs over the engine's caches, in which every forward pass has left what it needs, so that
there are drafts behind the first token of an answer already. The engine draws them and keeps their
laws. What is added here is how far they are to be trusted: the logit of each confidence is divided
by a temperature, fitted for the checkpoint if a table says so.

Shapes: Q sequences, n drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from deepinfer_core.errors import ConfigError, NotSupported
from deepinfer_core.interfaces.component import Properties
from deepinfer_core.interfaces.draft_planner import DraftOutcome, DraftPlanner, StepTimer
from deepinfer_core.interfaces.drafter import (
    Choose,
    DraftBlock,
    Drafter,
    DrafterCapabilities,
    DraftHost,
    DraftRound,
    Drafts,
)

from deepinfer_dspark.calibration import read_table
from deepinfer_dspark.confidence import confidences
from deepinfer_dspark.measured_files import MeasuredFiles
from deepinfer_dspark.measuring import MeasuredCosts, measure, round_sizes, row_sizes
from deepinfer_dspark.options import DsparkOptions
from deepinfer_dspark.planner import DsparkPlanner
from deepinfer_dspark.recording import BlockRecorder, RecordHeader

if TYPE_CHECKING:
    from deepinfer_core.plugin import BuildContext

__all__ = ["DsparkDrafter", "build"]

_BLOCK_DRAFTS = 5
"""Length that DSpark blocks are trained with."""


def build(options: DsparkOptions, context: BuildContext) -> DsparkDrafter:
    """Build the component; it is alike on every device."""
    return DsparkDrafter(options)


@dataclass(frozen=True, slots=True)
class _Attached:
    """What an engine brings."""

    block: DraftBlock
    drafts: int
    temperature_n: torch.Tensor
    recorder: BlockRecorder | None


class DsparkDrafter(Drafter):
    """The drafter of a checkpoint that has one.

    Args:
        options: files to read and to write.
    """

    def __init__(self, options: DsparkOptions) -> None:
        self._options = options
        self._attached: _Attached | None = None

    @property
    def properties(self) -> Properties:
        """It computes with the components of the model, which make promises of their own."""
        return Properties(batch_invariant="always", deterministic="always", graph_safe="always")

    @property
    def capabilities(self) -> DrafterCapabilities:
        """What it can do."""
        return DrafterCapabilities(
            max_drafts=_BLOCK_DRAFTS, law="full", has_confidence=True, uses_block=True
        )

    def attach(self, host: DraftHost) -> None:
        """Take the engine's draft block, and read the files that the options name.

        Raises:
            NotSupported: the checkpoint has no drafter.
            ConfigError: a file cannot be used, or is about another checkpoint.
        """
        if host.block is None:
            raise NotSupported(
                "asked for drafts of dspark.block, found a checkpoint without a drafter",
                hint='choose a checkpoint with one, or set components.drafter.use = "none"',
            )
        temperatures = self._temperatures(host)
        self._attached = _Attached(
            block=host.block,
            drafts=host.drafts,
            temperature_n=torch.tensor(temperatures[: host.drafts]).to(host.torch_device),
            recorder=self._recorder(host, temperatures),
        )

    def propose(self, wanted: DraftRound, choose: Choose) -> Drafts:
        """Run a round; see the interface."""
        assert self._attached is not None, "attach comes first"
        token_Qn, logit_Qn = self._attached.block(
            wanted, count=self._attached.drafts, choose=choose
        )
        return Drafts(
            token_Qn=token_Qn,
            confidence_Qn=confidences(logit_Qn, self._attached.temperature_n),
            raw_Qn=logit_Qn,
        )

    def learn(self, outcomes: Sequence[DraftOutcome]) -> None:
        """Write down what became of drafts, if that was asked for."""
        if self._attached is not None and self._attached.recorder is not None:
            self._attached.recorder.add(outcomes)

    def planner(self, host: DraftHost, timer: StepTimer) -> DraftPlanner:
        """Plan by confidences and by what steps take here; see the interface."""
        return DsparkPlanner(self._measured(host, timer), host.drafts)

    def _measured(self, host: DraftHost, timer: StepTimer) -> MeasuredCosts:
        rows = host.row_sizes or row_sizes(host.max_sequences * (host.drafts + 1))
        sequences = round_sizes(host.max_sequences)
        files = None
        if host.cache_dir and self._options.curve_ttl_s:
            files = MeasuredFiles(Path(host.cache_dir), self._options.curve_ttl_s)
        key = {"engine": host.identity, "drafts": host.drafts, "rows": rows, "rounds": sequences}
        found = None if files is None else files.find(key)
        if found is None:
            found = measure(timer, rows, sequences)
            if files is not None:
                files.keep(key, found)
        return found

    def _temperatures(self, host: DraftHost) -> tuple[float, ...]:
        if self._options.calibration is None:
            return host.temperatures
        table = read_table(
            self._options.calibration,
            checkpoint=host.checkpoint,
            drafts=len(host.temperatures),
            rule=host.rule,
        )
        return table.temperatures

    def _recorder(self, host: DraftHost, temperatures: tuple[float, ...]) -> BlockRecorder | None:
        if self._options.record is None:
            return None
        if host.drafts < len(temperatures):
            raise ConfigError(
                f"asked to record blocks of {len(temperatures)} drafts, found that "
                f"{host.drafts} are drafted",
                hint="record with whole blocks",
            )
        header = RecordHeader(checkpoint=host.checkpoint, rule=host.rule, temperatures=temperatures)
        return BlockRecorder(self._options.record, header)
