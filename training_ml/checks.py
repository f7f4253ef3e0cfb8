"""Checks of examples before any fit: what every estimator would stumble over, or profit from.

Estimators check nothing themselves, so that bad data has one error, whoever was to be fitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from rudder.errors import TrainingDataError, UnknownNameError
from rudder.model import Examples

TRAIN, VALIDATION, TEST = PARTS = ("train", "validation", "test")
"""Fitting; early stopping and the choice of thresholds; judging. The last may be missing."""
LEAST_ROWS = 20
"""Of the training part; fewer say nothing about 20 columns."""
LEAST_OF_A_CLASS = 5
"""Of the training part; calibration cuts it up once more."""
BLOCK = 8
"""So many consecutive rows that are equal, bit for bit, in two groups are no coincidence."""
_CLASSES = {0: "keep", 1: "replace"}

Parts = Mapping[str, Examples]


@dataclass(frozen=True)
class Checked:
    """What is no error, but worth telling.

    Attributes:
        constant: columns that have one value in the whole training part.
        balance: share of *replace* among the labels of each part.
    """

    constant: tuple[str, ...]
    balance: dict[str, float]


def check(parts: Parts, columns: Sequence[str] | None = None) -> Checked:
    """Refuse examples that no classifier can be fitted to, or whose parts are not independent.

    Args:
        parts: by their names, with the same columns each.
        columns: what will be fitted to; None = all. Only these must be finite, but all of them
            tell whether two runs are one.

    Raises:
        TrainingDataError: says what is wrong, in which part, and what to do.
        UnknownNameError: a column that the examples do not have.
    """
    _check_shapes(parts)
    chosen = parts[TRAIN].names if columns is None else tuple(columns)
    narrowed = {name: select(examples, chosen) for name, examples in parts.items()}
    _check_size(narrowed[TRAIN])
    for name, examples in narrowed.items():
        _check_values(name, examples)
    _check_classes(narrowed)
    _check_groups(parts)
    _check_copies(parts)
    rows = narrowed[TRAIN].rows
    constant = np.flatnonzero((rows == rows[0]).all(axis=0))
    return Checked(
        tuple(chosen[at] for at in constant),
        {name: float(e.labels.mean()) for name, e in narrowed.items() if len(e)},
    )


def select(examples: Examples, columns: Sequence[str]) -> Examples:
    """The examples with some of their columns, in the order given.

    Raises:
        UnknownNameError: names the columns that there are not, and those that there are.
        TrainingDataError: no column, or one twice.
    """
    unknown = [name for name in columns if name not in examples.names]
    if unknown:
        raise UnknownNameError(
            f"no column is named {', '.join(unknown)}; there are {', '.join(examples.names)}"
        )
    if not columns or len(set(columns)) != len(columns):
        raise TrainingDataError(
            f"columns to fit to must be named, each once; found {', '.join(columns) or 'none'}"
        )
    at = [examples.names.index(name) for name in columns]
    # Taking columns may leave them one after the other in memory; estimators get rows.
    rows = np.ascontiguousarray(examples.rows[:, at])
    return Examples(tuple(columns), rows, examples.labels, examples.weights, examples.groups)


def _check_shapes(parts: Parts) -> None:
    missing = [name for name in (TRAIN, VALIDATION) if name not in parts]
    if missing or not set(parts) <= set(PARTS):
        raise TrainingDataError(
            f"examples come in the parts {', '.join(PARTS)} (the last may be missing); found "
            f"{', '.join(parts) or 'none'}"
        )
    names = parts[TRAIN].names
    for part, examples in parts.items():
        count = len(examples.labels)
        if examples.names != names:
            raise TrainingDataError(
                f"the {part} part has the columns {', '.join(examples.names)}, the {TRAIN} part "
                f"{', '.join(names)}; label all parts in one go"
            )
        shapes = {
            "rows": (examples.rows.shape, (count, len(names))),
            "weights": (examples.weights.shape, (count,)),
            "groups": (examples.groups.shape, (count,)),
        }
        for what, (found, wanted) in shapes.items():
            if found != wanted:
                raise TrainingDataError(
                    f"the {part} part has {count} labels and {len(names)} columns, but its {what} "
                    f"are of shape {found} instead of {wanted}"
                )


def _check_size(train: Examples) -> None:
    if len(train) < LEAST_ROWS:
        raise TrainingDataError(
            f"the {TRAIN} part has {len(train)} rows, at least {LEAST_ROWS} are needed; collect "
            "more seeds or more schedules, or drop fewer ties when labelling"
        )


def _check_values(part: str, examples: Examples) -> None:
    finite = np.isfinite(examples.rows)
    if not finite.all():
        told = [
            f"{examples.names[at]} ({int((~finite[:, at]).sum())} of {len(examples)} rows)"
            for at in np.flatnonzero(~finite.all(axis=0))
        ]
        raise TrainingDataError(
            f"the {part} part has NaN or infinity in {', '.join(told)}; leave these columns out, "
            "or collect the runs that they come from again"
        )
    weights = examples.weights
    if len(weights) and not (np.isfinite(weights) & (weights > 0)).all():
        at = int(np.flatnonzero(~(np.isfinite(weights) & (weights > 0)))[0])
        raise TrainingDataError(
            f"the {part} part has weights that are not positive, such as {weights[at]} in row "
            f"{at}; an example without weight is to be dropped when labelling"
        )
    foreign = sorted(set(np.unique(examples.labels).tolist()) - set(_CLASSES))
    if foreign:
        raise TrainingDataError(
            f"the {part} part has the labels {foreign}; they must be 0 (keep) or 1 (replace)"
        )


def _check_classes(parts: Parts) -> None:
    counts = {
        name: {which: int((examples.labels == which).sum()) for which in _CLASSES}
        for name, examples in parts.items()
    }
    for which, word in _CLASSES.items():
        fitted, validated = counts[TRAIN][which], counts[VALIDATION][which]
        if validated and not fitted:
            raise TrainingDataError(
                f"{word!r} occurs in the {VALIDATION} part only ({validated} times), never in the "
                f"{len(parts[TRAIN])} rows of the {TRAIN} part; collect more seeds, so that both "
                "parts see both answers"
            )
    for name in (TRAIN, VALIDATION):
        for which, word in _CLASSES.items():
            found = counts[name][which]
            if found == 0:
                other = _CLASSES[1 - which]
                raise TrainingDataError(
                    f"the {name} part has one class only: all of its {len(parts[name])} rows say "
                    f"{other!r}; collect scenarios or schedules in which {word!r} pays, or label "
                    "by another rule"
                )
            if name == TRAIN and found < LEAST_OF_A_CLASS:
                raise TrainingDataError(
                    f"only {found} of the {len(parts[name])} rows of the {name} part say {word!r}, "
                    f"at least {LEAST_OF_A_CLASS} are needed; collect more seeds or other schedules"
                )


def _check_groups(parts: Parts) -> None:
    members = {name: set(examples.groups.tolist()) for name, examples in parts.items()}
    for one, other in combinations(parts, 2):
        shared = sorted(members[one] & members[other])
        if shared:
            raise TrainingDataError(
                f"leak: {_listed(shared)} lie in both the {one} and the {other} part; a group "
                "belongs to one part, whole"
            )


def _check_copies(parts: Parts) -> None:
    seen: dict[bytes, tuple[str, str]] = {}
    copies: dict[tuple[str, str, str, str], None] = {}
    ids = _row_ids(parts)
    for part, examples in parts.items():
        for group, block in _blocks(ids[part], examples.groups):
            first_part, first = seen.setdefault(block, (part, group))
            if first_part != part:
                copies[(first_part, first, part, group)] = None
    if copies:
        told = [f"{first} ({one}) and {group} ({part})" for one, first, part, group in copies]
        raise TrainingDataError(
            f"leak: the same run lies on both sides of a split: {_listed(told)} share {BLOCK} "
            "consecutive rows or more, bit for bit; remove one of the copies"
        )


def _row_ids(parts: Parts) -> dict[str, npt.NDArray[np.int64]]:
    """A number per row: equal rows, equal number."""
    rows = np.concatenate([examples.rows for examples in parts.values()]) + 0.0  # -0.0 is 0.0
    whole = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.itemsize * rows.shape[1])))
    numbers = np.unique(whole.ravel(), return_inverse=True)[1].astype(np.int64)
    ends = np.cumsum([len(examples) for examples in parts.values()])
    return dict(zip(parts, np.split(numbers, ends[:-1]), strict=True))


def _blocks(
    ids: npt.NDArray[np.int64], groups: npt.NDArray[np.str_]
) -> Iterator[tuple[str, bytes]]:
    """Every window of :data:`BLOCK` rows of a group, or the whole of a smaller one.

    Windows of few different rows are left out: columns that hardly vary make equal ones by chance.
    """
    for group in np.unique(groups):
        own = ids[groups == group]
        width = min(BLOCK, len(own))
        if width < 2:
            continue
        for window in np.lib.stride_tricks.sliding_window_view(own, width):
            if len(set(window.tolist())) > width // 2:
                yield str(group), window.tobytes()


def _listed(words: Sequence[str], most: int = 5) -> str:
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more
