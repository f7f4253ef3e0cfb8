"""The directory that holds all state: graphs, partitions, runs, traces, models, ``mlflow.db``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rudder.errors import HomeError


@dataclass(frozen=True)
class Home:
    """Paths under one root. ``Home.resolve`` is the only place that reads ``RUDDER_HOME``."""

    root: Path

    @classmethod
    def resolve(cls, given: Path | None = None) -> Home:
        """``given``, else ``RUDDER_HOME``, else ``./rudder-data``; absolute, and made.

        Raises:
            HomeError: it cannot be made or written, or belongs to another user.
        """
        root = Path(given or os.environ.get("RUDDER_HOME") or "rudder-data").expanduser().resolve()
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HomeError(f"cannot make the data directory {root}: {error.strerror}") from error
        if root.stat().st_uid != os.getuid():
            raise HomeError(
                f"the data directory {root} belongs to uid {root.stat().st_uid}, you are "
                f"{os.getuid()}; choose another with --home"
            )
        if not os.access(root, os.W_OK | os.X_OK):
            raise HomeError(f"the data directory {root} is not writable; choose another: --home")
        return cls(root)

    @property
    def graphs(self) -> Path:
        return self._made("graphs")

    @property
    def partitions(self) -> Path:
        return self._made("partitions")

    @property
    def runs(self) -> Path:
        return self._made("runs")

    @property
    def traces(self) -> Path:
        return self._made("traces")

    @property
    def models(self) -> Path:
        """Fitted models, a directory each."""
        return self._made("models")

    @property
    def collections(self) -> Path:
        """Decision traces and their labels, a directory per collection."""
        return self._made("collections")

    @property
    def sweeps(self) -> Path:
        """Evaluations: a directory each, with a line per cell."""
        return self._made("sweeps")

    @property
    def batch(self) -> Path:
        """Batch scripts of Slurm, and the logs of their jobs."""
        return self._made("batch")

    @property
    def outbox(self) -> Path:
        """Runs that MLflow has not received yet (``rudder sync`` sends them)."""
        return self._made("outbox")

    @property
    def mlflow_uri(self) -> str:
        """The default tracking store: SQLite under the root."""
        return f"sqlite:///{self.root / 'mlflow.db'}"

    @property
    def mlflow_artifacts(self) -> Path:
        return self._made("mlflow-artifacts")

    def _made(self, name: str) -> Path:
        path = self.root / name
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            raise HomeError(
                f"cannot make the folder {path}: {error.strerror}; mend that or choose another "
                "data directory: --home"
            ) from error
        return path
