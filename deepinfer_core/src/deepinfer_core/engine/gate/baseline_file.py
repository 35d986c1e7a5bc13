"""How do the baselines of all devices lie in a file?

JSON with a schema version. Each device has what was measured on it. Sums are hex floats, so that no
digit is lost and two files can be compared by eye. The likelihoods of single positions stand once
for all conditions with equal bits, under a digest: base64 of fp64, little end first. So do the
components, once for all conditions that ran on the same ones.
"""

from __future__ import annotations

import hashlib
import json
import struct
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from deepinfer_core.engine.gate.baseline import (
    Baseline,
    ConditionScores,
    Measurement,
    Platform,
    Refresh,
    SampleScore,
    Tolerance,
)
from deepinfer_core.engine.gate.conditions import Rounding
from deepinfer_core.engine.gate.texts import Selection
from deepinfer_core.errors import ConfigError
from deepinfer_core.whole_files import replace_file

__all__ = ["SCHEMA_VERSION", "read_baselines", "write_baselines"]

SCHEMA_VERSION = 3


def read_baselines(path: Path) -> dict[str, Baseline]:
    """Read the baselines of all devices, by the device's name.

    Raises:
        ConfigError: the file cannot be read, has another schema version, or is damaged.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"the baseline {path} cannot be read: {error.strerror or error}",
            hint="name it with --baseline; deepinfer eval refresh makes one",
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the baseline {path} is not JSON: {error}", hint=_RESTORE) from error
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION:
        raise ConfigError(
            f"the baseline {path} has schema version {version}, expected {SCHEMA_VERSION}",
            hint="deepinfer eval refresh writes this version's",
        )
    try:
        return _from_json(data)
    except (
        ArithmeticError,
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        struct.error,
    ) as error:
        raise ConfigError(
            f"the baseline {path} is damaged: {type(error).__name__}: {error}", hint=_RESTORE
        ) from error


def write_baselines(path: Path, baselines: Mapping[str, Baseline]) -> None:
    """Write the baselines of all devices; the old file stays until the new one is whole.

    Raises:
        ConfigError: the file cannot be written.
    """
    text = json.dumps(_to_json(baselines), indent=1) + "\n"
    try:
        replace_file(path, text)
    except OSError as error:
        raise ConfigError(
            f"the baseline {path} cannot be written: {error.strerror or error}",
            hint="name another file with --baseline",
        ) from error


_RESTORE = "bring it back from the repository, or run deepinfer eval refresh"


def _to_json(baselines: Mapping[str, Baseline]) -> dict[str, Any]:
    positions: dict[str, str] = {}
    components: dict[str, dict[str, str]] = {}
    return {
        "schema_version": SCHEMA_VERSION,
        "devices": {
            device: _device_to_json(baseline, components, positions)
            for device, baseline in baselines.items()
        },
        "components": components,
        "positions": positions,
    }


def _device_to_json(
    baseline: Baseline, components: dict[str, dict[str, str]], positions: dict[str, str]
) -> dict[str, Any]:
    measured = baseline.measurement
    conditions = {
        name: {
            "checkpoint": scores.checkpoint,
            "tokenizer": scores.tokenizer,
            "arithmetic": scores.arithmetic,
            "rounding": scores.rounding,
            "components": _components_key(scores.components, components),
            "ppl": scores.ppl,
            "samples": [_sample_to_json(sample, positions) for sample in scores.samples],
        }
        for name, scores in measured.conditions.items()
    }
    return {
        "history": [asdict(refresh) for refresh in baseline.history],
        "platform": asdict(measured.platform),
        "selection": asdict(measured.selection),
        "tolerances": {name: asdict(item) for name, item in baseline.tolerances.items()},
        "conditions": conditions,
    }


def _components_key(found: Mapping[str, str], known: dict[str, dict[str, str]]) -> str:
    text = json.dumps(sorted(found.items()))
    key = hashlib.sha256(text.encode()).hexdigest()[:8]
    known[key] = dict(found)
    return key


def _sample_to_json(sample: SampleScore, positions: dict[str, str]) -> dict[str, Any]:
    packed = struct.pack(f"<{len(sample.nats)}d", *sample.nats)
    key = hashlib.sha256(packed).hexdigest()[:16]
    positions[key] = b64encode(packed).decode()
    return {
        "id": sample.id,
        "first": sample.first,
        "tokens": len(sample.nats),
        "nll_sum": sample.nll_sum.hex(),
        "ppl": sample.ppl,
        "positions": key,
    }


def _from_json(data: dict[str, Any]) -> dict[str, Baseline]:
    positions = {key: _unpack(text) for key, text in data["positions"].items()}
    return {
        device: _device_from_json(entry, data["components"], positions)
        for device, entry in data["devices"].items()
    }


def _device_from_json(
    data: dict[str, Any],
    components: dict[str, dict[str, str]],
    positions: dict[str, tuple[float, ...]],
) -> Baseline:
    platform = data["platform"]
    platform["instruction_sets"] = tuple(platform["instruction_sets"])
    conditions = {
        name: ConditionScores(
            checkpoint=entry["checkpoint"],
            tokenizer=entry["tokenizer"],
            arithmetic=entry["arithmetic"],
            rounding=entry["rounding"],
            components=components[entry["components"]],
            samples=tuple(_sample(item, positions) for item in entry["samples"]),
        )
        for name, entry in data["conditions"].items()
    }
    return Baseline(
        measurement=Measurement(
            platform=Platform(**platform),
            selection=Selection(**data["selection"]),
            conditions=conditions,
        ),
        tolerances={name: Tolerance(**data["tolerances"][name]) for name in get_args(Rounding)},
        history=tuple(Refresh(**item) for item in data["history"]),
    )


def _unpack(text: str) -> tuple[float, ...]:
    packed = b64decode(text, validate=True)
    return struct.unpack(f"<{len(packed) // 8}d", packed)


def _sample(item: dict[str, Any], positions: dict[str, tuple[float, ...]]) -> SampleScore:
    sample = SampleScore(id=item["id"], nats=positions[item["positions"]], first=item["first"])
    if len(sample.nats) != item["tokens"] or sample.nll_sum != float.fromhex(item["nll_sum"]):
        raise ValueError(f"sum and positions of {sample.id} disagree")
    return sample
