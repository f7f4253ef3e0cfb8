"""A decision threshold fitted to labelled situations, for a controller that says p(replace).

A calibration is a directory with ``calibration.json``: the threshold, what it was fitted to, and
the identity of what was asked (model, weights, prompt template and all that shapes p(replace)). It
holds for that identity alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rudder.errors import ModelError
from rudder.model.manifest import Training

SCHEMA_VERSION = 1
CALIBRATION_FILE = "calibration.json"


class Calibration(BaseModel):
    """A fitted threshold.

    Attributes:
        name: of the calibration.
        controller: spec of the controller that was asked, as text.
        identity: what shaped its p(replace), JSON values.
        threshold: p(replace) from which it should replace.
        training: where the situations came from; what the leak check compares.
        metrics: with and without the threshold, on situations it was not fitted to.
        created: UTC, ISO 8601.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = SCHEMA_VERSION
    name: str = Field(min_length=1)
    controller: str
    identity: dict[str, Any]
    threshold: float = Field(ge=0, le=1)
    training: Training
    metrics: dict[str, float | None] = {}
    created: str = ""

    def write(self, folder: Path) -> None:
        """Write ``calibration.json``, with its own digest, whole."""
        fields = self.model_dump(mode="json")
        text = json.dumps({**fields, "digest": _digest(fields)}, indent=1, sort_keys=True)
        folder.mkdir(parents=True, exist_ok=True)
        scratch = folder / (CALIBRATION_FILE + ".part")
        scratch.write_text(text + "\n", encoding="utf-8")
        scratch.replace(folder / CALIBRATION_FILE)

    @classmethod
    def read(cls, folder: Path) -> Calibration:
        """Read what :meth:`write` wrote.

        Raises:
            ModelError: none lies there, or it was damaged, edited or made by another version.
        """
        path = folder / CALIBRATION_FILE
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ModelError(
                f"no calibration in {folder} ({error}); make one with 'rudder calibrate'"
            ) from error
        if not isinstance(fields, dict) or fields.get("schema_version") != SCHEMA_VERSION:
            raise ModelError(f"{path} is not of schema version {SCHEMA_VERSION}; calibrate again")
        if fields.pop("digest", None) != _digest(fields):
            raise ModelError(f"{path} was edited: its digest does not fit; calibrate again")
        try:
            return cls(**fields)
        except ValidationError as error:
            raise ModelError(f"{path} holds no calibration: {error}") from error

    def threshold_for(self, identity: Mapping[str, Any]) -> float:
        """The threshold, for what it was fitted to.

        Raises:
            ModelError: names what is different.
        """
        wanted = json.loads(json.dumps(dict(identity)))
        other = [
            f"{key}: {self.identity.get(key)!r} instead of {wanted.get(key)!r}"
            for key in sorted({*self.identity, *wanted})
            if self.identity.get(key) != wanted.get(key)
        ]
        if other:
            raise ModelError(
                f"calibration {self.name!r} was fitted to something else ({'; '.join(other)}); "
                "calibrate this one with 'rudder calibrate'"
            )
        return self.threshold


def _digest(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
