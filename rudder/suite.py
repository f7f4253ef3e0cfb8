"""A suite: named scenarios with splits, read from TOML.

::

    summary = "what it is for"

    [base]                          # fields of every scenario
    graph = "debian"

    [scenarios.drifting]
    split = "id_train"              # the default
    seed_order = "communities"

    [scenarios.wide]
    split = "ood_fan_out"
    fan_out = [15, 30]
    each = { buffer = [0.05, 0.25], policy = ["score", "massivegnn"] }   # every combination

A scenario with ``each`` becomes one per combination, named ``wide/buffer=0.05,policy=score``.
"""

from __future__ import annotations

import difflib
import fnmatch
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rudder.errors import ScenarioError, SpecError, SuiteError, UnknownNameError
from rudder.scenario import Scenario
from rudder.toml import read_toml

AXES = (
    "batch_size", "fan_out", "parts", "partition_method", "buffer", "rate", "graph", "model",
    "drift", "policy", "latency",
)  # fmt: skip
"""What a shift may change; ``ood_`` and one of these names the split of shifted scenarios."""
SPLITS = ("id_train", "id_val", *(f"ood_{axis}" for axis in AXES))
_OWN = ("split", "each", "summary")


@dataclass(frozen=True)
class SuiteScenario:
    """One scenario of a suite.

    Attributes:
        name: unique in the suite.
        split: one of :data:`SPLITS`.
        scenario: its seed is the default; who runs it chooses seeds.
        summary: one line, or "".
        changes: the fields that its own table gives, as they are written there.
    """

    name: str
    split: str
    scenario: Scenario
    summary: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def axis(self) -> str:
        """What was shifted; "" in distribution."""
        return self.split.removeprefix("ood_") if self.split.startswith("ood_") else ""


@dataclass(frozen=True)
class Suite:
    """Named scenarios.

    Attributes:
        name: of the suite, its file's stem.
        summary: one line.
        scenarios: in the order of the file.
        path: where it was read.
        base: the fields of ``[base]``, as they are written there.
    """

    name: str
    summary: str
    scenarios: tuple[SuiteScenario, ...]
    path: Path | None = None
    base: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | Path) -> Suite:
        """Read a TOML file.

        Raises:
            SpecError: no such file, or no TOML.
            SuiteError: names the table and what is wrong in it.
        """
        path = Path(path)
        return cls.of(path.stem, read_toml(path), path)

    @classmethod
    def of(cls, name: str, data: Mapping[str, Any], path: Path | None = None) -> Suite:
        """A suite from the content of its file.

        Raises:
            SuiteError: names the table and what is wrong in it.
        """
        where = str(path or name)
        unknown = set(data) - {"summary", "base", "scenarios"}
        if unknown:
            raise SuiteError(
                f"{where}: unknown {', '.join(sorted(unknown))}; a suite has summary, [base] and "
                "[scenarios.NAME]"
            )
        base, tables = data.get("base", {}), data.get("scenarios", {})
        if not isinstance(base, Mapping) or not isinstance(tables, Mapping) or not tables:
            raise SuiteError(f"{where}: needs at least one table [scenarios.NAME], and [base]")
        found: list[SuiteScenario] = []
        for key, table in tables.items():
            if not isinstance(table, Mapping):
                raise SuiteError(f"{where}: scenarios.{key} must be a table, found {table!r}")
            found += _expand(f"{where}: [scenarios.{key}]", key, base, table)
        _check_distinct(where, found)
        return cls(name, _summary(where, data), tuple(found), path, dict(base))

    def __iter__(self) -> Iterator[SuiteScenario]:
        return iter(self.scenarios)

    def select(self, patterns: Sequence[str] = (), splits: Sequence[str] = ()) -> Suite:
        """Only the scenarios whose name fits a pattern (``*``, ``?``) and whose split is named.

        A table's name stands for all of its combinations.

        Raises:
            UnknownNameError: a pattern or split that fits none; lists what there is.
        """
        for given, known in ((patterns, self.names), (splits, self.splits)):
            for one in given:
                if not any(_fits(name, one) for name in known):
                    tables = [name.partition("/")[0] for name in known]
                    near = difflib.get_close_matches(one, [*known, *tables], n=1, cutoff=0.5)
                    hint = f"; did you mean {near[0]!r}?" if near else ""
                    raise UnknownNameError(
                        f"suite {self.name!r} has nothing named {one!r}; there are "
                        f"{', '.join(known)}{hint}"
                    )
        kept = tuple(
            item
            for item in self.scenarios
            if (not patterns or any(_fits(item.name, p) for p in patterns))
            and (not splits or any(_fits(item.split, s) for s in splits))
        )
        if not kept:
            raise UnknownNameError(f"suite {self.name!r}: no scenario fits both names and splits")
        return replace(self, scenarios=kept)

    @property
    def names(self) -> list[str]:
        return [item.name for item in self.scenarios]

    @property
    def splits(self) -> list[str]:
        """Splits that occur, in order of occurrence."""
        return list(dict.fromkeys(item.split for item in self.scenarios))

    def digest(self) -> str:
        """SHA-256 over names, splits and scenarios, 16 hex digits."""
        told = [[item.name, item.split, item.scenario.digest()] for item in self.scenarios]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def _expand(
    where: str, key: str, base: Mapping[str, Any], table: Mapping[str, Any]
) -> list[SuiteScenario]:
    """The scenarios of one table: one, or one per combination of ``each``."""
    if not key.strip() or not key.isprintable():
        raise SuiteError(f"{where}: a scenario's name is printable text on one line, found {key!r}")
    split, each = table.get("split", "id_train"), table.get("each", {})
    if split not in SPLITS:
        raise SuiteError(f"{where}: split = {split!r}, but splits are {', '.join(SPLITS)}")
    if not isinstance(each, Mapping) or not all(
        isinstance(values, list) and values for values in each.values()
    ):
        raise SuiteError(f"{where}: each must map fields to lists of values, found {each!r}")
    own = {field: value for field, value in table.items() if field not in _OWN}
    if twice := set(own) & set(each):
        raise SuiteError(f"{where}: {', '.join(sorted(twice))} is given twice, itself and in each")
    summary = _summary(where, table)
    found = []
    for values in itertools.product(*each.values()):
        chosen = dict(zip(each, values, strict=True))
        told = ",".join(f"{field}={_written(value)}" for field, value in chosen.items())
        fields = {**base, **own, **chosen}
        if "seed" in fields:
            raise SuiteError(f"{where}: seed is not a suite's to fix: whoever runs it chooses")
        try:
            scenario = Scenario.make(**fields)
        except ScenarioError as error:
            raise SuiteError(f"{where}: {error}") from error
        name = f"{key}/{told}" if told else key
        found.append(SuiteScenario(name, split, scenario, summary, {**own, **chosen}))
    return found


def _summary(where: str, table: Mapping[str, Any]) -> str:
    summary = table.get("summary", "")
    if not isinstance(summary, str):
        raise SuiteError(f"{where}: summary must be text, found {summary!r}")
    return summary


def _check_distinct(where: str, scenarios: Sequence[SuiteScenario]) -> None:
    """One name, one scenario: twice the same would be run twice, or leak from split to split."""
    names: set[str] = set()
    digests: dict[str, str] = {}
    for item in scenarios:
        if item.name in names:
            raise SuiteError(f"{where}: two scenarios are named {item.name!r}; rename one of them")
        names.add(item.name)
        twin = digests.setdefault(item.scenario.digest(), item.name)
        if twin != item.name:
            raise SuiteError(
                f"{where}: {item.name!r} is the same scenario as {twin!r}; remove one of them"
            )


def _fits(name: str, pattern: str) -> bool:
    """Names hold brackets, which a pattern reads otherwise: an equal name always fits."""
    own = name.partition("/")[0]
    return pattern in (name, own) or fnmatch.fnmatchcase(name, pattern)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def find_suite(text: str) -> Suite:
    """The suite that a user means: a registered name, or a TOML file.

    Raises:
        SpecError, SuiteError, UnknownNameError: no such suite, or none that can be read.
    """
    from rudder.registries import SUITES

    path = Path(text).expanduser()
    if path.suffix == ".toml":
        return Suite.read(path.resolve())
    suite: Suite = SUITES.build(text)
    return suite


def register_suites(folder: Path) -> None:
    """Register every ``*.toml`` of a folder under its stem.

    Raises:
        SpecError: a file that is no TOML.
    """
    from rudder.registries import SUITES

    for path in sorted(folder.glob("*.toml")):
        summary = read_toml(path).get("summary", "")
        if not isinstance(summary, str):
            raise SpecError(f"{path}: summary must be text, found {summary!r}")
        SUITES.register(
            path.stem,
            "rudder.suite:Suite.read",
            summary=summary,
            params={"path": str(path)},
            origin=str(path),
        )
