"""What is the whole story of a choice, for tables, JSON, logs and observers?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deepinfer_core.errors import DeepInferError
from deepinfer_core.plugin.choice import SlotChoice
from deepinfer_core.plugin.context import DeviceFacts
from deepinfer_core.plugin.loading import PluginStatus
from deepinfer_core.plugin.probing import Candidate

__all__ = ["Report"]

Table = list[tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Every plugin and every candidate, with its state and reason.

    Attributes:
        device: facts of the configured device.
        plugins: one status for each installed plugin.
        slots: one choice for each slot.
        problems: what keeps the configuration from being used; empty if nothing does.
        served: candidates of the kinds of which any number works side by side, if they were asked.
    """

    device: DeviceFacts
    plugins: tuple[PluginStatus, ...]
    slots: tuple[SlotChoice, ...]
    problems: tuple[DeepInferError, ...] = ()
    served: tuple[Candidate, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Lists that fell back, and once for all slots what keeps ``auto`` from a component."""
        return tuple(dict.fromkeys(choice.warning for choice in self.slots if choice.warning))

    def picked(self) -> dict[str, str]:
        """Component of each slot that has one."""
        return {
            choice.wish.title: choice.picked.spec.name for choice in self.slots if choice.picked
        }

    def plugin_table(self) -> Table:
        """Rows of text with a header."""
        rows: Table = [("plugin", "distribution", "version", "state", "")]
        for item in self.plugins:
            time = f"{item.load_s * 1000:.0f} ms" if item.state == "loaded" else ""
            notes = "  ".join(part for part in (time, item.reason) if part)
            plugin = item.plugin
            rows.append((plugin.name, plugin.distribution, plugin.version, item.state, notes))
        return rows

    def slot_table(self) -> Table:
        """Rows of text with a header; a slot is named in its first row only."""
        rows: Table = [("slot", "component", "state", "score", "reason")]
        for choice in self.slots:
            title = choice.wish.title
            for row in choice.rows:
                score = str(row.candidate.score) if row.candidate.usable else "-"
                rows.append((title, row.candidate.spec.name, row.state, score, row.reason))
                title = ""
            if not choice.rows:
                rows.append((title, "-", "", "-", "nobody offers one"))
        for item in self.served:
            rows.append((item.spec.kind, item.spec.name, item.judgement, "-", item.reason))
        return rows

    def to_json(self) -> dict[str, Any]:
        """Everything as plain data; an interface, see the plugin guide."""
        return {
            "device": self.device.to_json(),
            "plugins": [_plugin_json(item) for item in self.plugins],
            "slots": [_slot_json(item) for item in self.slots],
            "problems": [
                {"code": item.code, "message": item.message, "hint": item.hint}
                for item in self.problems
            ],
            "warnings": list(self.warnings),
            "served": [_served_json(item) for item in self.served],
        }


def _plugin_json(status: PluginStatus) -> dict[str, Any]:
    return {
        "name": status.plugin.name,
        "distribution": status.plugin.distribution,
        "version": status.plugin.version,
        "state": status.state,
        "reason": status.reason,
        "load_s": round(status.load_s, 6),
    }


def _slot_json(choice: SlotChoice) -> dict[str, Any]:
    return {
        "kind": choice.wish.kind,
        "slot": choice.wish.slot,
        "use": choice.wish.use if isinstance(choice.wish.use, str) else list(choice.wish.use),
        "picked": choice.picked.spec.name if choice.picked else None,
        "candidates": [
            {
                "component": row.candidate.spec.name,
                "distribution": row.candidate.offer.plugin.distribution,
                "state": row.state,
                "score": row.candidate.score if row.candidate.usable else None,
                "reason": row.reason,
                "fix": row.candidate.fix,
                "properties": dict(row.candidate.spec.properties),
            }
            for row in choice.rows
        ],
    }


def _served_json(candidate: Candidate) -> dict[str, Any]:
    return {
        "kind": candidate.spec.kind,
        "component": candidate.spec.name,
        "distribution": candidate.offer.plugin.distribution,
        "state": candidate.judgement,
        "reason": candidate.reason,
        "fix": candidate.fix,
    }
