"""The calibration: what the model of time must know of a machine, as one plain JSON file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rudder.errors import CalibrationError, MissingPathError

SCHEMA_VERSION = 1
BURST_BYTES = 256 * 1024
"""Burst of the token buckets of emulated hosts (:mod:`rudder.cluster.links`)."""

UNITS: Mapping[str, str] = {
    "cores": "cores that all hosts' processes share; 0 = each trainer has its own",
    "sample_fixed_s": "s of one core per minibatch",
    "sample_node_s": "s of one core per input node",
    "serve_fixed_s": "s of one core per minibatch",
    "serve_byte_s": "s of one core per byte of input features",
    "train_fixed_s": "s of one core per minibatch",
    "train_byte_s": "s of one core per byte of input features",
    "efficiency": "share of the link's rate that payload gets",
    "sampling_wait": "seconds of sampling on the link / its bytes at the rate, mean of ranks",
    "sampling_wait_slowest": "the same of the rank that a minibatch waits for at depth 0",
    "sampling_row_bytes": "bytes of sampling per remote input node",
    "model_bytes": "bytes of the model's parameters",
    "burst_bytes": "bytes that pass an idle link at once",
    "latency_s": "s of one message, beyond what the fixed seconds hold",
}


@dataclass(frozen=True)
class Machine:
    """Parameters of the model; units in :data:`UNITS`.

    Attributes:
        source: the run that they were fitted to, what it ran, and which parameters are assumed.
    """

    cores: float
    sample_fixed_s: float
    sample_node_s: float
    serve_fixed_s: float
    serve_byte_s: float
    train_fixed_s: float
    train_byte_s: float
    efficiency: float = 1.0
    sampling_wait: float = 1.0
    sampling_wait_slowest: float = 1.0
    sampling_row_bytes: float = 0.0
    model_bytes: float = 0.0
    burst_bytes: float = BURST_BYTES
    latency_s: float = 0.0
    source: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        wrong = {n: value for n in UNITS if not 0 <= (value := getattr(self, n)) < math.inf}
        if wrong or not 0 < self.efficiency <= 1:
            raise CalibrationError(
                f"calibration out of range: {wrong or {'efficiency': self.efficiency}}; "
                "calibrate anew with 'rudder calibrate-time'"
            )

    def stretch(self, ranks: int) -> float:
        """How much longer one trainer's CPU work takes while all ``ranks`` trainers work."""
        return max(1.0, ranks / self.cores) if self.cores else 1.0

    def gradient_bytes(self, ranks: int) -> float:
        """Bytes that one of ``ranks`` trainers sends per minibatch in a ring all-reduce."""
        return 2 * (ranks - 1) * self.model_bytes / ranks

    def save(self, path: Path) -> None:
        """Write as JSON, whole or not at all.

        Raises:
            CalibrationError: it cannot be written there.
        """
        values = {
            "schema_version": SCHEMA_VERSION,
            "source": dict(self.source),
            "parameters": {
                name: {"value": getattr(self, name), "unit": unit} for name, unit in UNITS.items()
            },
        }
        scratch = path.with_name(path.name + ".part")
        try:
            scratch.write_text(json.dumps(values, indent=2) + "\n")
            scratch.replace(path)
        except OSError as error:
            with suppress(OSError):
                scratch.unlink()
            raise CalibrationError(
                f"the calibration cannot be written to {path}: {error.strerror}; choose another "
                "place"
            ) from error

    @classmethod
    def load(cls, path: Path) -> Machine:
        """Read what :meth:`save` wrote.

        Raises:
            MissingPathError: there is no such file.
            CalibrationError: damaged, of another schema version, or out of range.
        """
        if not path.is_file():
            raise MissingPathError(f"no calibration at {path}; 'rudder calibrate-time' makes one")
        try:
            values = json.loads(path.read_text())
            version = values["schema_version"]
            if version != SCHEMA_VERSION:
                raise CalibrationError(
                    f"{path} has schema version {version!r}, this Rudder reads {SCHEMA_VERSION}; "
                    "calibrate anew"
                )
            found = {name: float(values["parameters"][name]["value"]) for name in UNITS}
            return cls(**found, source=dict(values["source"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CalibrationError(f"{path} holds no calibration: {error!r}") from error
