"""The contract of an estimator: a binary classifier that says how likely *replace* is right."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.float64]
Told = Callable[[str, float], None]
"""Progress: what is being done, and the share of it that is done, 0..1."""


@dataclass(frozen=True)
class Examples:
    """Labelled observations.

    Attributes:
        names: of the columns, in order.
        rows: float64 (examples, columns), finite.
        labels: int8 (examples,): 1 = replace, 0 = keep.
        weights: float64 (examples,): what a mistake costs; mean 1, above 0.
        groups: text (examples,): what must not be split between fitting and judging.
    """

    names: tuple[str, ...]
    rows: Rows
    labels: npt.NDArray[np.int8]
    weights: npt.NDArray[np.float64]
    groups: npt.NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, chosen: npt.NDArray[Any]) -> Examples:
        """Some examples, by a mask or by indices."""
        return Examples(
            self.names,
            self.rows[chosen],
            self.labels[chosen],
            self.weights[chosen],
            self.groups[chosen],
        )


class Trial(Protocol):
    """What a search asks for values; Optuna's trials are such."""

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = ...) -> int: ...

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = ...) -> float: ...

    def suggest_categorical(self, name: str, choices: Any) -> Any: ...


class Estimator(ABC):
    """A binary classifier; the constructor takes its hyperparameters as keyword arguments.

    Subclasses check nothing of the examples: who fits does that once, for all of them.

    Attributes:
        files: names of all files that :meth:`save` writes.
        libraries: distributions whose versions decide whether a saved one can be read.
        adaptable: can it go on learning from single examples (:meth:`adapt`)?
    """

    files: ClassVar[tuple[str, ...]]
    libraries: ClassVar[tuple[str, ...]] = ()
    adaptable: ClassVar[bool] = False

    @abstractmethod
    def fit(
        self, examples: Examples, validation: Examples, seed: int, progress: Told
    ) -> dict[str, Any]:
        """Fit to ``examples``; stop early by ``validation``, whose groups are others.

        Both classes occur in both. Fitting twice with one seed gives the same predictions.

        Returns:
            What fitting came to, as JSON values (rounds, best round, …).
        """

    @abstractmethod
    def predict(self, rows: Rows) -> npt.NDArray[np.float64]:
        """Probability of *replace*, float64 (n,) in 0..1, of float64 (n, columns) as fitted."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write :attr:`files` into an existing folder, in formats that hold no code."""

    @abstractmethod
    def restore(self, folder: Path, columns: int) -> None:
        """Read what :meth:`save` wrote; afterwards predictions equal those of the saved one.

        Args:
            columns: of the rows that it was fitted to.

        Raises:
            ModelError: names the file and what is wrong with it.
        """

    def adapt(self, rows: Rows, labels: npt.NDArray[np.int8]) -> None:
        """Learn a little from few examples, in place; only where :attr:`adaptable`."""
        raise TypeError(f"{type(self).__name__} cannot go on learning")

    @classmethod
    def suggest(cls, trial: Trial) -> dict[str, Any]:
        """Hyperparameters to try; {} = nothing to search."""
        return {}
