"""One MLflow tracking store, reached through MLflow's client; no global state of MLflow is used."""

from __future__ import annotations

import fcntl
import glob
import logging
import os
import re
import socket
import sqlite3
import ssl
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from rudder.errors import RudderError, TrackingError, UsageError
from rudder.home import Home

PROBE_TIMEOUT_S = 3.0
"""Seconds that an HTTP server has to answer anything at all."""
LOCK_TIMEOUT_S = 120.0
"""Seconds to wait for other processes that write to the same SQLite file."""

_SQLITE = "sqlite:///"
_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
_ENVIRONMENT = {
    # Usage statistics leave the machine only if the user asks for it.
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # MLflow's own defaults retry for minutes; what fails here is kept and sent later. A large file
    # behind a slow store still has time.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    # Standard output belongs to the command's report.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # The command shows its own progress.
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
_EXPERIMENT_KIND = {"mlflow.experimentKind": "custom_model_development"}
"""Makes the UI open an experiment on its runs instead of on traces of language models."""


class Store:
    """A tracking store and how to reach it.

    Args:
        home: where the default store lives.
        uri: an MLflow server (``https://…``) or database (``sqlite:///…``, ``postgresql://…``);
            None = the SQLite file of ``home``. A relative path of a file is resolved here.

    Raises:
        UsageError: ``uri`` is none.
    """

    def __init__(self, home: Home, uri: str | None = None) -> None:
        self.uri = _absolute(uri) if uri else home.mlflow_uri
        self.shown = _without_password(self.uri)
        """The URI without its password, for messages and files."""
        self.is_default = self.uri == home.mlflow_uri
        if self.uri.startswith(_SQLITE) and "?" in self.uri:
            raise UsageError(
                f"{self.uri.removeprefix(_SQLITE)}: a '?' cannot stand in the path of an SQLite "
                f"store; choose another {'data directory: --home' if self.is_default else 'file'}"
            )
        self._artifacts = home.mlflow_artifacts if self.is_default else None
        self._client: Any = None

    @contextmanager
    def session(self) -> Iterator[Any]:
        """An ``MlflowClient`` that reaches the store. Sessions do not nest.

        On SQLite a session excludes those of other processes: MLflow creates the tables of a fresh
        file without a lock that all of its versions share, and SQLite has one writer anyway.

        Raises:
            TrackingError: the store cannot be reached or refuses.
            UsageError: MLflow knows no store of this kind.
        """
        self._probe()
        _prepare()
        from mlflow import MlflowClient
        from mlflow.tracking.registry import UnsupportedModelRegistryStoreURIException

        with self._alone() as file:
            try:
                if file is not None:
                    _open_or_make(file)
                if self._client is None:
                    self._client = MlflowClient(tracking_uri=self.uri)
                yield self._client
            except UnsupportedModelRegistryStoreURIException as error:
                raise UsageError(f"MLflow has no store for {self.shown}: {error}") from error
            except RudderError:
                raise
            # Databases, and above all the stores of artifacts behind a server (S3, Azure, …), raise
            # what their libraries have, a missing library among it. No run may be lost by that.
            except Exception as error:
                reason = str(error).strip().partition("\n")[0]
                raise TrackingError(
                    f"MLflow at {self.shown} failed: {type(error).__name__}: {reason}"
                ) from error

    def experiment(self, client: Any, name: str) -> str:
        """The id of an experiment, created if it is not there; for use within a session.

        Raises:
            TrackingError: it was deleted.
        """
        from mlflow.exceptions import MlflowException

        found = client.get_experiment_by_name(name)
        if found is None:
            try:
                location = self._artifacts.as_uri() if self._artifacts else None
                return str(client.create_experiment(name, location, tags=_EXPERIMENT_KIND))
            except MlflowException:
                found = client.get_experiment_by_name(name)  # another process was faster
                if found is None:
                    raise
        if found.lifecycle_stage != "active":
            raise TrackingError(
                f"experiment {name!r} was deleted from {self.shown}; restore it with 'mlflow "
                f"experiments restore --experiment-id {found.experiment_id}' or name another"
            )
        for key, value in _EXPERIMENT_KIND.items():
            if key not in found.tags:  # somebody else made it
                client.set_experiment_tag(found.experiment_id, key, value)
        return str(found.experiment_id)

    def _probe(self) -> None:
        """Fail within seconds when no server answers; MLflow itself would try for minutes."""
        parts = urlsplit(self.uri)
        port = parts.port or _PORTS.get(parts.scheme.partition("+")[0])
        try:
            if parts.scheme in ("http", "https"):
                _ask(parts._replace(netloc=parts.netloc.rpartition("@")[2]))  # without password
            elif parts.hostname and port:
                socket.create_connection((parts.hostname, port), PROBE_TIMEOUT_S).close()
        # A UnicodeError is what Python makes of a host name like "a..b".
        except (OSError, HTTPException, UnicodeError) as error:
            reason = getattr(error, "reason", error)
            raise TrackingError(f"no MLflow store answers at {self.shown}: {reason}") from error

    @contextmanager
    def _alone(self) -> Iterator[Path | None]:
        """Hold the lock of an SQLite file and name the file; None for another kind of store."""
        path = self.uri.removeprefix(_SQLITE)
        if path == self.uri:
            yield None
            return
        with exclusive(Path(path + ".lock")):
            yield Path(path)


def _ask(server: SplitResult) -> None:
    """Any answer will do: MLflow has its own words for a refused password or certificate."""
    url = f"{urlunsplit(server).rstrip('/')}/health"
    try:
        with urllib.request.urlopen(url, timeout=PROBE_TIMEOUT_S):
            return
    except urllib.error.HTTPError:
        return
    except urllib.error.URLError as error:
        if not isinstance(error.reason, ssl.SSLError):
            raise


def _open_or_make(file: Path) -> None:
    """Fail at once where SQLite cannot open the file; make the tables of one that is not there.

    A fresh store appears whole: making its tables takes seconds and does not survive a stop.
    """
    if file.exists():
        with closing(sqlite3.connect(file, timeout=LOCK_TIMEOUT_S)) as connection:
            connection.execute("PRAGMA schema_version")
        return
    from mlflow import MlflowClient

    for left in file.parent.glob(f"{glob.escape(file.name)}.*.part*"):
        left.unlink()  # by a process that was killed: we hold the lock now
    part = file.with_name(f"{file.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        MlflowClient(tracking_uri=f"sqlite:///{part}").search_experiments(max_results=1)
        part.rename(file)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file ``path``; it is made, and stays.

    Raises:
        TrackingError: it cannot be opened, or another process holds it for too long.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise TrackingError(f"cannot open {path}: {error.strerror}") from error
    try:
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise TrackingError(
                        f"another process has held {path} for {LOCK_TIMEOUT_S:.0f} s; "
                        f"find it with 'fuser {path}'"
                    ) from error
                time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def _absolute(uri: str) -> str:
    """A relative path of an SQLite file, resolved: the outbox may be sent from another folder."""
    path = uri.removeprefix(_SQLITE)
    return uri if path == uri else f"{_SQLITE}{Path(path).absolute()}"


def _without_password(uri: str) -> str:
    """``uri`` fit to be shown.

    Raises:
        UsageError: it is none.
    """
    try:
        if not re.match(r"[a-z][a-z0-9+.-]*:", uri):
            raise ValueError("it names no kind of store")
        parts = urlsplit(uri)
        password, _ = parts.password, parts.port  # what is no port raises
    except ValueError as error:
        raise UsageError(
            f"{uri!r} is no tracking URI ({error}); write http://HOST:PORT of an MLflow server, "
            "or a database such as sqlite:////absolute/path/mlflow.db"
        ) from error
    if password is None:
        return uri
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username}@{host}"))


def environment() -> dict[str, str]:
    """This process's environment with Rudder's settings for MLflow where the user has none."""
    return {**_ENVIRONMENT, **os.environ}


def _prepare() -> None:
    """Settings that MLflow reads from the environment, before it is imported."""
    os.environ.update(environment())
    for name in ("alembic", "mlflow.store.db.utils"):  # chatter about making tables
        logging.getLogger(name).setLevel(logging.WARNING)
