"""What lies beside a model's weights: schema, support, training, versions; and its checks.

A model is a directory with ``model.json`` and the files that it lists with their SHA-256. All of it
is checked before any weights are read, and the formats of weights hold no code.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rudder.errors import ModelError, SpecError
from rudder.model.support import Support
from rudder.observation import FEATURES
from rudder.observation import SCHEMA_VERSION as OBSERVATION_SCHEMA
from rudder.spec import Spec

SCHEMA_VERSION = 1
MANIFEST_FILE = "model.json"


class Column(BaseModel):
    """One column of the feature vector, as it was when the model was fitted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    unit: str


class Training(BaseModel):
    """Where the examples came from; what a leak check compares.

    Attributes:
        suite: name of the suite.
        suite_digest: of the suite.
        scenarios: digest of each scenario seen in fitting or early stopping, by its name.
        graphs: dataset specs of these.
        traces: ids of the access traces.
        seeds: of the traces.
        collection: SHA-256 of the collection's manifest.
        label: spec of the label rule.
        examples: counts by part (``train``, ``validation``, ``test``); what was dropped, by why.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    suite: str
    suite_digest: str
    scenarios: dict[str, str]
    graphs: tuple[str, ...]
    traces: tuple[str, ...]
    seeds: tuple[int, ...]
    collection: str
    label: str
    examples: dict[str, int]


class ModelManifest(BaseModel):
    """Everything about a model but its weights.

    Attributes:
        name: of the model.
        estimator: spec of the estimator, defaults spelled out.
        observation_schema: version of :data:`rudder.observation.FEATURES`.
        columns: names and units, in the order of the rows.
        files: SHA-256 by name.
        support: of the training rows.
        threshold: p(replace) from which the model means replace.
        training: where the examples came from.
        fitted: what fitting came to.
        metrics: on held-out groups, by name.
        seed: of fitting.
        made_with: versions of libraries that fitted it.
        compatible: version specifiers of libraries that can read it.
        created: UTC, ISO 8601.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=()
    )

    schema_version: int = SCHEMA_VERSION
    name: str = Field(min_length=1)
    estimator: dict[str, Any]
    observation_schema: int
    columns: tuple[Column, ...] = Field(min_length=1)
    files: dict[str, str]
    support: Support
    threshold: float = Field(0.5, ge=0, le=1)
    training: Training
    fitted: dict[str, Any] = {}
    metrics: dict[str, float | None] = {}
    seed: int = 0
    made_with: dict[str, str] = {}
    compatible: dict[str, str] = {}
    created: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def spec(self) -> Spec:
        """Of the estimator."""
        return Spec.parse(self.estimator)

    def write(self, folder: Path) -> None:
        """Write ``model.json``, with its own digest."""
        fields = self.model_dump(mode="json")
        whole = {**fields, "digest": _digest(fields)}
        text = json.dumps(whole, indent=1, sort_keys=True, allow_nan=False)
        (folder / MANIFEST_FILE).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> ModelManifest:
        """Read and check ``model.json``, the files beside it and the versions installed.

        Raises:
            ModelError: no model there, damaged or edited, of another schema, with other files than
                it lists, or made for other library versions.
        """
        path = folder / MANIFEST_FILE
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise ModelError(
                f"no model in {folder}: {MANIFEST_FILE} is missing; fit one with 'rudder fit'"
            ) from error
        except (OSError, ValueError, RecursionError) as error:
            raise ModelError(f"{path} cannot be read: {error}") from error
        if not isinstance(fields, dict):
            raise ModelError(f"{path} holds no object")
        if (version := fields.get("schema_version")) != SCHEMA_VERSION:
            raise ModelError(
                f"{path} has schema version {version!r}, this Rudder reads {SCHEMA_VERSION}; "
                "fit the model anew"
            )
        if fields.pop("digest", None) != _digest(fields):
            raise ModelError(f"{path} was edited: its digest does not fit; fit the model anew")
        try:
            manifest = cls(**fields)
            Spec.parse(manifest.estimator)
        except (ValidationError, SpecError) as error:
            raise ModelError(f"{path} does not hold a model's facts: {error}") from error
        manifest.check_columns(path)
        manifest.check_files(folder)
        manifest.check_versions(path)
        return manifest

    def check_columns(self, path: Path) -> None:
        """Refuse another observation schema, and columns that this one does not have."""
        if self.observation_schema != OBSERVATION_SCHEMA:
            raise ModelError(
                f"{path} was fitted to observations of schema version {self.observation_schema}, "
                f"this Rudder makes version {OBSERVATION_SCHEMA}; fit the model anew"
            )
        known = {feature.name: feature.unit for feature in FEATURES}
        wrong = [c.name for c in self.columns if known.get(c.name) != c.unit]
        if (
            wrong
            or len(set(self.names)) != len(self.names)
            or len(self.support.low) != len(self.columns)
        ):
            raise ModelError(
                f"{path} has columns that observations do not have so: "
                f"{', '.join(wrong) or 'repeated, or of another number than its support'}"
            )

    def check_files(self, folder: Path) -> None:
        """Refuse missing, additional and changed files, and links in their place."""
        found = {
            path.relative_to(folder).as_posix()
            for path in folder.rglob("*")
            if path.is_symlink() or not path.is_dir()
        } - {MANIFEST_FILE}
        if found != set(self.files):
            raise ModelError(
                f"{folder} should hold {', '.join(sorted(self.files))} beside {MANIFEST_FILE}, "
                f"found {', '.join(sorted(found)) or 'nothing'}"
            )
        for name, digest in self.files.items():
            path = folder / name
            try:
                same = path.is_file() and not path.is_symlink() and sha256(path) == digest
            except OSError as error:
                raise ModelError(f"{path} cannot be read: {error}") from error
            if not same:
                raise ModelError(
                    f"{path} is not the file that the model was saved with; fit it anew"
                )

    def check_versions(self, path: Path) -> None:
        """Refuse library versions outside the range that the model can be read with."""
        for library, wanted in self.compatible.items():
            try:
                installed = importlib.metadata.version(library)
            except importlib.metadata.PackageNotFoundError as error:
                raise ModelError(
                    f"{path} needs {library} {wanted}, which is not installed; "
                    "pip install 'rudder-gnn[classifiers]'"
                ) from error
            try:
                fits = SpecifierSet(wanted).contains(installed, prereleases=True)
            except InvalidSpecifier as error:
                raise ModelError(f"{path}: {wanted!r} is no range of versions") from error
            if not fits:
                raise ModelError(
                    f"{path} needs {library} {wanted}, but {installed} is installed; "
                    "install that, or fit the model anew"
                )


def sha256(path: Path) -> str:
    """Of a file, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _digest(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
