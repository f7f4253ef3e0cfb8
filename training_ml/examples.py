"""The table of labelled questions of a collection: ``examples-RULE.parquet``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rudder.errors import (
    CollectionError,
    MissingPathError,
    SpecError,
    TrainingDataError,
    UnknownNameError,
)
from rudder.model import Examples
from rudder.observation import SCHEMA_VERSION as OBSERVATION_SCHEMA
from rudder.observation import feature_names
from rudder.spec import Spec

from .checks import PARTS

SCHEMA_VERSION = 1
SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("group", pa.string()),
        ("scenario", pa.string()),
        ("schedule", pa.string()),
        ("policy", pa.string()),
        ("seed", pa.int64()),
        ("rank", pa.int32()),
        ("question", pa.int32()),
        ("minibatch", pa.int32()),
        ("replace", pa.bool_()),
        ("part", pa.string()),
        *((name, pa.float64()) for name in feature_names()),
        ("label", pa.int8()),
        ("weight", pa.float64()),
        ("gain", pa.float64()),
        ("dropped", pa.string()),
    ]
)
"""One row per question that applied, dropped ones included.

``group``: id of the access trace; ``replace``: what was decided at ``minibatch``; ``label``: 1 =
replace, 0 = keep, null = dropped; ``weight``: mean 1 over the kept rows of the training part, 0 =
dropped; ``gain``: what the rule scored, null = nothing; ``dropped``: why, "" = kept.
"""
_VERSION, _RULE, _COLLECTION, _OBSERVATION = (
    b"rudder.examples", b"rudder.rule", b"rudder.collection", b"rudder.observation",
)  # fmt: skip


def examples_path(collection: Path, rule: str) -> Path:
    """Where a rule's examples lie in a collection's folder."""
    return collection / f"examples-{rule}.parquet"


@dataclass(frozen=True)
class ExampleTable:
    """Labelled questions.

    Attributes:
        table: of :data:`SCHEMA`.
        rule: spec of the rule, defaults spelled out.
        collection: digest of the collection's manifest.
    """

    table: pa.Table
    rule: Spec
    collection: str

    def save(self, path: Path) -> None:
        """Write it, whole or not at all.

        Raises:
            TrainingDataError: one group occurs in two parts.
        """
        _check_groups(self.table, path)
        facts = {
            _VERSION: str(SCHEMA_VERSION),
            _RULE: self.rule.to_json(),
            _COLLECTION: self.collection,
            _OBSERVATION: str(OBSERVATION_SCHEMA),
        }
        scratch = path.with_name(path.name + ".part")
        pq.write_table(self.table.replace_schema_metadata(facts), scratch)
        scratch.replace(path)

    @classmethod
    def read(cls, path: Path, collection: str | None = None) -> ExampleTable:
        """Read what :meth:`save` wrote; columns are found by name.

        Args:
            path: the file.
            collection: digest that its collection has now; None = do not compare.

        Raises:
            MissingPathError: there is none.
            CollectionError: damaged, no such table, or made for another schema, observation or
                collection.
            TrainingDataError: one group occurs in two parts.
        """
        if not path.is_file():
            raise MissingPathError(
                f"no examples at {path}; make them with 'rudder label {path.parent.name}'"
            )
        try:
            table = pq.read_table(path)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise CollectionError(f"{path} cannot be read: {error}; label again") from error
        facts = table.schema.metadata or {}
        for key, wanted in (
            (_VERSION, str(SCHEMA_VERSION)),
            (_OBSERVATION, str(OBSERVATION_SCHEMA)),
            (_COLLECTION, collection),
        ):
            found = facts.get(key, b"").decode()
            if wanted is not None and found != wanted:
                raise CollectionError(
                    f"{path} has {key.decode()} {found or 'nowhere'!r}, wanted is {wanted!r}: it "
                    "was made by another version, or of a collection that changed; label again"
                )
        table = _columns(table, path)
        try:
            rule = Spec.from_json(facts.get(_RULE, b"").decode())
        except SpecError as error:
            raise CollectionError(f"{path} names no label rule: {error}; label again") from error
        _check_rows(table, path)
        _check_groups(table, path)
        return cls(table, rule, facts.get(_COLLECTION, b"").decode())

    def column(self, name: str) -> npt.NDArray[Any]:
        """A column, ``[questions]``; a null is NaN."""
        found: npt.NDArray[Any] = self.table.column(name).to_numpy()
        return found

    def kept(self, part: str | None = None) -> npt.NDArray[np.bool_]:
        """Which rows have a label, in a part or in all: bool ``[questions]``.

        Raises:
            UnknownNameError: no such part.
        """
        kept: npt.NDArray[np.bool_] = ~np.isnan(self.column("label").astype(np.float64))
        if part is None:
            return kept
        if part not in PARTS:
            raise UnknownNameError(f"no part is named {part!r}; there are {', '.join(PARTS)}")
        of_part: npt.NDArray[np.bool_] = self.column("part") == part
        return kept & of_part

    def part(self, part: str, columns: Sequence[str] | None = None) -> Examples:
        """The kept examples of a part, in the order of the table; weights have mean 1 in it.

        Args:
            part: one of :data:`rudder_training_ml.checks.PARTS`.
            columns: features, in this order; None = all.

        Raises:
            UnknownNameError: no such part or feature.
        """
        columns = feature_names() if columns is None else tuple(columns)
        unknown = [name for name in columns if name not in feature_names()]
        if unknown:
            raise UnknownNameError(
                f"no feature is named {', '.join(unknown)}; there are {', '.join(feature_names())}"
            )
        kept = self.kept(part)
        rows = [self.column(name)[kept] for name in columns]
        weights = self.column("weight")[kept]
        return Examples(
            names=columns,
            rows=np.column_stack(rows) if rows else np.empty((int(kept.sum()), 0)),
            labels=self.column("label")[kept].astype(np.int8),
            weights=weights / weights.mean() if len(weights) else weights,
            groups=self.column("group")[kept].astype(np.str_),
        )

    def parts(self, columns: Sequence[str] | None = None) -> dict[str, Examples]:
        """Every part by its name, see :meth:`part`."""
        return {name: self.part(name, columns) for name in PARTS}

    def counts(self) -> dict[str, int]:
        """Kept examples by part, then dropped questions by reason (``dropped: tie``)."""
        found = {part: int(self.kept(part).sum()) for part in PARTS}
        reasons = self.table.column("dropped").value_counts().to_pylist()
        dropped = {f"dropped: {r['values']}": r["counts"] for r in reasons if r["values"]}
        return {**found, **dict(sorted(dropped.items()))}

    def gains(self, part: str) -> npt.NDArray[np.float64]:
        """What the rule scored for replace, float64, for each example of :meth:`part`."""
        found: npt.NDArray[np.float64] = self.column("gain")[self.kept(part)]
        return found


def _columns(table: pa.Table, path: Path) -> pa.Table:
    """The columns of :data:`SCHEMA` by name, whatever their order."""
    found = {field.name: field.type for field in table.schema}
    wrong = [
        f"{field.name}: {found.get(field.name, 'missing')} instead of {field.type}"
        for field in SCHEMA
        if found.get(field.name) != field.type
    ]
    extra = sorted(set(found) - set(SCHEMA.names))
    if wrong or extra:
        told = [*wrong, *(f"{name} is not one of them" for name in extra)]
        raise CollectionError(
            f"{path} does not have the columns of labelled examples ({'; '.join(told)}); label "
            "again"
        )
    return table.select(SCHEMA.names)


def _check_rows(table: pa.Table, path: Path) -> None:
    label, weight = table.column("label"), table.column("weight").to_numpy()
    labels = set(label.unique().to_pylist()) - {None}
    parts = set(table.column("part").unique().to_pylist())
    kept = label.is_valid().to_numpy()
    told = pc.equal(table.column("dropped"), "").to_numpy(zero_copy_only=False)
    problems = [
        *([f"labels {sorted(labels)}"] if not labels <= {0, 1} else []),
        *([f"parts {sorted(map(str, parts))}"] if not parts <= set(PARTS) else []),
        *(["labels without reason to drop them, or the reverse"] if (kept != told).any() else []),
        *(["weights that are not positive"] if not (weight[kept] > 0).all() else []),
    ]
    if problems:
        raise CollectionError(f"{path} was edited: it has {'; '.join(problems)}; label again")


def _check_groups(table: pa.Table, path: Path) -> None:
    """A group is one access trace: what was seen in fitting must not judge, under no schedule."""
    kept = table.filter(table.column("label").is_valid())
    pairs = kept.group_by(["group", "part"]).aggregate([]).to_pydict()
    parts: dict[str, list[str]] = {}
    for group, part in zip(pairs["group"], pairs["part"], strict=True):
        parts.setdefault(group, []).append(part)
    leaks = {group: sorted(found) for group, found in parts.items() if len(found) > 1}
    if leaks:
        group, found = min(leaks.items())
        raise TrainingDataError(
            f"leak: {path} has {len(leaks)} access traces in more than one part, such as {group} "
            f"in {' and '.join(found)}; runs over one trace are not independent, so label the "
            "collection again"
        )
